"""Tapered batches for a DataLoader."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.schedule import Tapered


class TaperedBatches(Sampler[list[int]]):  # type: ignore[misc]
    """The batches of a whole run, small at first and largest at the end, made by `tapered_batches`.

    `sizes` has the size of each. Rows come in shuffled passes over the data, and depend on the seed alone.
    """

    def __init__(self, sizes: tuple[int, ...], rows: int, seed: int, start: int) -> None:
        self.sizes, self.rows, self.seed, self.start = sizes, rows, seed, start

    def __len__(self) -> int:
        return len(self.sizes) - self.start

    def __iter__(self) -> Iterator[list[int]]:
        position = sum(self.sizes[: self.start])
        for size in self.sizes[self.start :]:
            yield self._rows(position, position + size)
            position += size

    def _rows(self, begin: int, end: int) -> list[int]:
        parts: list[int] = []
        while begin < end:
            number, first = divmod(begin, self.rows)
            last = min(self.rows, first + end - begin)
            parts += self._pass(number)[first:last]
            begin += last - first
        return parts

    def _pass(self, number: int) -> list[int]:
        if getattr(self, "_made", None) != number:
            self._made = number
            rng = torch.Generator().manual_seed((self.seed + 1) * 1_000_003 + number)
            self._order: list[int] = torch.randperm(self.rows, generator=rng).tolist()
        return self._order


def tapered_batches(
    total: int, steps: int, *, rows: int | None = None, least: int = 1, most: int | None = None, seed: int = 0,
    start: int = 0,
) -> TaperedBatches:  # fmt: skip
    r"""Batches for `DataLoader(data, batch_sampler=...)` that spend rows where `DualAnchor` feels them: at the end.

    Their sizes follow `dualanchor.Tapered` within `least` and `most`. One pass over the loader is the whole run.

    Parameters
    ----------
    total : int, rows that are read in all, such as `epochs * len(data)`; at most a few remain unread
    steps : int, batches; the `total_steps` of the optimiser
    rows : int, `len(data)`; by default `total`, one pass over the data
    least, most : int, sizes of batches, at least and at most; `least` keeps the first steps stable
    seed : int, of the order of rows
    start : int, batches to leave out, those that an earlier part of the run has had

    Examples
    --------
    >>> batches = tapered_batches(1000, steps=20)
    >>> batches.sizes[0], batches.sizes[-1], sum(batches.sizes)
    (16, 229, 1000)
    """
    name = "tapered_batches"
    total, steps = check.count(total, f"{name}: total"), check.count(steps, f"{name}: steps")
    least = check.count(least, f"{name}: least")
    most = total if most is None else check.count(most, f"{name}: most", least)
    if not least * steps <= total <= most * steps:
        rule = f"{name}: {steps} batches of {least} to {most} rows must be able to have {total} rows in all"
        raise ArgumentError(rule, f"{least * steps} to {most * steps}", "Change steps, least or most")
    rows = total if rows is None else check.count(rows, f"{name}: rows")
    start, seed = check.count(start, f"{name}: start", 0, most=steps), check.count(seed, f"{name}: seed", 0)

    def sizes(C: float) -> Any:
        return np.clip(Tapered(C).size(np.arange(steps), steps + 1), least, most)

    low, high = 1e-9, 2.0 * most * (steps + 1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sizes(middle).sum() <= total else (low, middle)
    return TaperedBatches(tuple(sizes(low).tolist()), rows, seed, start)
