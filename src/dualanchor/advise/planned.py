"""What a plan says: rounds, batches, samples, the bound that they earn and the theorem behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, isfinite, sqrt
from typing import Any

from dualanchor.core.errors import ArgumentError
from dualanchor.core.method import Method
from dualanchor.core.schedule import Stages, Tapered
from dualanchor.methods.averaged import AveragedSGDA
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.restarted_dual_ohm import RestartedDualOHM
from dualanchor.methods.sgda import SGDA
from dualanchor.methods.tapered_dual_ohm import TaperedDualOHM
from dualanchor.theory.complexity import TABLE
from dualanchor.theory.schedules import Run

AVERAGING = "Averaging of affine operators"


@dataclass(frozen=True, repr=False)
class Plan:
    """What a run will do and what it is then known to reach.

    Attributes
    ----------
    theorem, assumptions : str, tuple of str
        The result behind the bound, and what it rests on.
    step_size : float
        alpha.
    horizon, stop : int
        N, and the step after which to stop, at most N - 1.
    stages : tuple of Run
        One run, or several started one after another.
    rounds, samples : int
        Oracle rounds, one after another, and samples in all.
    bound : float
        Root mean square of the residual at the end, at most.
    exact : bool
        Whether `samples` is the exact number and the optimum in whole numbers; otherwise a close upper bound.
    eps, budget : float or None
        What was asked for.
    seconds : float or None
        Predicted time, where latency and cost of a sample were given.
    rejected : tuple of (str, float)
        Other results that apply, and how many samples they would need.
    note : str or None
        What else was done, such as longer steps for larger batches.
    """

    theorem: str
    assumptions: tuple[str, ...]
    step_size: float
    horizon: int
    stop: int
    stages: tuple[Run, ...]
    rounds: int
    samples: int
    bound: float
    exact: bool
    eps: float | None
    budget: int | None
    seconds: float | None = None
    rejected: tuple[tuple[str, float], ...] = ()
    note: str | None = None
    asked: dict[str, Any] = field(default_factory=dict)

    def method(self) -> Method:
        """The method, ready for `solve`; stop it after `stop` steps if that is less than `horizon - 1`."""
        if self.rounds == 0:
            return DualOHM(self.step_size, horizon=1)
        if self.theorem == AVERAGING:
            return AveragedSGDA(self.step_size, weights="uniform")
        if self.theorem.startswith("Theorem C"):
            return SGDA(self.step_size, batch_size=self._batches())
        if len(self.stages) > 1:
            return RestartedDualOHM(
                self.step_size,
                horizons=tuple(run.horizon for run in self.stages),
                batch_sizes=tuple(run.batch_size for run in self.stages),
            )
        sizes = self.stages[0].batch_size
        kind = DualOHM if isinstance(sizes, int) else TaperedDualOHM
        return kind(self.step_size, horizon=self.horizon, batch_size=sizes)

    def _batches(self) -> Any:
        if len(self.stages) == 1:
            return self.stages[0].batch_size
        return Stages(
            tuple(run.horizon for run in self.stages),
            tuple(run.batch_size for run in self.stages),
        )

    @property
    def batches(self) -> dict[str, Any]:
        """Kind and parameters of the batch sizes, with the first and the last of them."""
        first, last = self.stages[0], self.stages[-1]
        if len(self.stages) > 1:
            kinds = {"stages": [_described(run.batch_size) for run in self.stages]}
            return {"kind": "staged", **kinds, "first": _size(first, 0), "last": _size(last, -1)}
        return {**_described(first.batch_size), "first": _size(first, 0), "last": _size(first, -1)}

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {
            "theorem": self.theorem,
            "assumptions": list(self.assumptions),
            "horizon": self.horizon,
            "stop": self.stop,
            "batches": self.batches,
            "rounds": self.rounds,
            "samples": self.samples,
            "bound": self.bound,
            "step_size": self.step_size,
            "exact": self.exact,
            "eps": self.eps,
            "budget": self.budget,
            "seconds": self.seconds,
            "note": self.note,
            "stages": [
                {
                    "horizon": run.horizon,
                    "batches": _described(run.batch_size),
                    "samples": run.samples,
                    "bound": run.bound,
                }
                for run in self.stages
            ],
            "rejected": [{"theorem": name, "samples": samples} for name, samples in self.rejected],
            "other_methods": [
                {"method": name, "samples": samples, "complexity": order, "note": note}
                for name, order, samples, note in self.other_methods()
            ],
        }

    def other_methods(self) -> list[tuple[str, str, float | None, str]]:
        """Method, order, certified samples (None where only the order is known) and a note, for the same accuracy."""
        known = self.asked
        eps = self.eps if self.eps is not None else self.bound
        if not known or not eps or not isfinite(eps) or known.get("sigma") is None:
            return []
        given = (eps, known["L"], known["D"], known["sigma"])
        return [
            (line.method, line.complexity, None if line.samples is None else line.samples(*given), line.note)
            for line in TABLE
        ]

    @cached_property
    def halved(self) -> Plan | None:
        """The plan for half of eps, where an eps was asked for."""
        if self.eps is None or not self.asked:
            return None
        from dualanchor.advise.plan import plan

        return plan(**{**self.asked, "eps": self.eps / 2})

    def __repr__(self) -> str:
        lines = [
            ("theorem", self.theorem),
            ("assumes", "; ".join(self.assumptions)),
            ("step size", f"{self.step_size:.6g}"),
            (
                "rounds",
                _count(self.rounds) + (f" of horizon {_count(self.horizon)}" if self.stop < self.horizon - 1 else ""),
            ),
            ("batches", self._batch_line()),
            ("samples", ("" if self.exact else "≤ ") + _count(self.samples)),
            ("bound", f"root mean square residual ≤ {self.bound:.4g}" + (f" (eps = {self.eps:g})" if self.eps else "")),
        ]
        if self.note is not None:
            lines.append(("note", self.note))
        if self.seconds is not None:
            lines.append(("time", f"about {self.seconds:.4g} s predicted"))
        if self.halved is not None and self.samples:
            more = self.halved
            lines.append(
                (
                    "eps / 2",
                    f"{more.rounds / max(1, self.rounds):.3g} times the rounds, "
                    f"{more.samples / self.samples:.3g} times the samples",
                )
            )
        for name, cost in self.rejected:
            lines.append(("instead of", f"{name}: {_count(cost)} samples"))
        others = self.other_methods()
        for name, order, samples, note in others:
            if samples is not None and name != "dual-ohm, tapered":
                lines.append((name, f"{_count(samples)} samples, {order}: {note}"))
        if others:
            orders = ", ".join(f"{name} {order}" for name, order, samples, _ in others if samples is None)
            lines.append(("order only", orders))
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:>{width}}: {text}" for name, text in lines)

    def _batch_line(self) -> str:
        facts = self.batches
        if self.rounds == 0:
            return "none: the start is good enough"
        if facts["first"] == facts["last"] and facts["kind"] == "constant":
            return f"{_samples(facts['size'])} in every round"
        stages = f"{len(self.stages)} stages, " if len(self.stages) > 1 else ""
        return f"{stages}from {_samples(facts['first'])} in the first round to {_count(facts['last'])} in the last"


def _described(batch_size: Any) -> dict[str, Any]:
    if isinstance(batch_size, Tapered):
        parameters = {"C": batch_size.C} | ({"multiple": batch_size.multiple} if batch_size.multiple > 1 else {})
        return {"kind": "tapered", **parameters}
    return {"kind": "constant", "size": batch_size}


def _size(run: Run, k: int) -> int:
    if run.horizon < 2:
        return 0
    if isinstance(run.batch_size, int):
        return run.batch_size
    m = run.horizon if k == 0 else 2
    P = run.batch_size.multiple
    return int(P * max(1, ceil(run.batch_size.C / P / sqrt(m * (m - 1.0)))))


def _count(value: float) -> str:
    if not isfinite(value):
        return "infinitely many"
    return f"{int(value):,}" if value < 1e9 else f"{value:.3g}"


def _samples(value: float) -> str:
    return "1 sample" if value == 1 else f"{_count(value)} samples"


def refused(rule: str, received: Any, remedy: str) -> ArgumentError:
    """The error for what cannot be planned."""
    return ArgumentError(f"plan: {rule}", received, remedy)
