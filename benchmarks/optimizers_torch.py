"""Time of a step of this library's PyTorch optimisers against SGD with momentum, side by side.

A million parameters in float32, as one tensor and as a hundred. Gradients stand still: only `step()` is measured.
`ExtraGradient` is measured with `extrapolate()`, so against two steps of SGD.
Prints a table, or with --json a list of rows. Least times over interleaved repetitions: the machine may be noisy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.common import Row, at_most, main
from dualanchor.integrations.torch import OHM, DualAnchor, ExtraGradient, OptimisticGradient

PARAMETERS, TARGET, LR = 1_000_000, 1.5, 1e-6


def with_gradients(tensors: int) -> list[torch.nn.Parameter]:
    """Parameters of equal size, a million numbers in all, with gradients."""
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(PARAMETERS // tensors, generator=generator)) for _ in range(tensors)]
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator)
    return params


def contestants(tensors: int, horizon: int) -> dict[str, Callable[[], Any]]:
    """What is timed: SGD as the yardstick, and a step of each optimiser."""
    extra = ExtraGradient(with_gradients(tensors), LR)

    def two_phases() -> None:
        extra.extrapolate()
        extra.step()

    return {
        "SGD(momentum=0.9)": torch.optim.SGD(with_gradients(tensors), LR, momentum=0.9).step,
        "SGD(momentum=0.9, foreach=True)": torch.optim.SGD(
            with_gradients(tensors), LR, momentum=0.9, foreach=True
        ).step,
        "DualAnchor": DualAnchor(with_gradients(tensors), LR, horizon).step,
        "OHM": OHM(with_gradients(tensors), LR).step,
        "OptimisticGradient": OptimisticGradient(with_gradients(tensors), LR).step,
        "ExtraGradient": two_phases,
    }


def least_times(functions: dict[str, Callable[[], Any]], repeat: int, steps: int) -> dict[str, float]:
    """Least microseconds per step, the functions taking turns; the first turn makes the buffers and is not counted."""
    times = {name: float("inf") for name in functions}
    for turn in range(repeat + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(steps):
                function()
            if turn:
                times[name] = min(times[name], 1e6 * (time.perf_counter() - start) / steps)
    return times


def rows(quick: bool = False) -> list[Row]:
    """Microseconds per step, measured against the faster of SGD's two ways, and their ratio."""
    repeat, steps = (5, 10) if quick else (30, 20)
    table = []
    for tensors, form in ((1, "one tensor"), (100, "100 tensors")):
        times = least_times(contestants(tensors, (repeat + 1) * steps + 1), repeat, steps)
        yardstick = min(time for name, time in times.items() if name.startswith("SGD"))
        for name, measured in times.items():
            if name.startswith("SGD"):
                continue
            against = 2 * yardstick if name == "ExtraGradient" else yardstick
            twice = "two steps of " if name == "ExtraGradient" else ""
            title = f"torch {name} against {twice}SGD with momentum, {PARAMETERS:,} parameters, {form}, µs"
            table.append(at_most(title, measured, against, TARGET))
    return table


if __name__ == "__main__":
    main(rows, __doc__)
