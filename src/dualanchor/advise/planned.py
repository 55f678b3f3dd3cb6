"""`Plan`: rounds, batches, samples, the bound that they give and the theorem behind it."""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite
from typing import Any, Self

import numpy as np

from dualanchor.core.claim import Theorem
from dualanchor.core.errors import ArgumentError
from dualanchor.core.finding import Finding
from dualanchor.core.method import Method
from dualanchor.core.render import html_table, text_lines
from dualanchor.core.schedule import Constant, Geometric, Paired, PowerTapered, Stages, Tapered
from dualanchor.core.types import Array
from dualanchor.methods.averaged import AveragedSGDA
from dualanchor.methods.dual_ohm import DualOHM, TaperedDualOHM
from dualanchor.methods.restarted_dual_ohm import RestartedDualOHM
from dualanchor.methods.sgda import SGDA
from dualanchor.theory.bounds import A1, A2, COCOERCIVE, STRONG
from dualanchor.theory.complexity import MONOTONE_TABLE, TABLE, Complexity
from dualanchor.theory.monotone import A3, AFFINE, LIPSCHITZ, MONOTONE
from dualanchor.theory.schedules import Run

THEOREMS = {
    theorem.id: theorem
    for theorem in (
        Theorem("start", "the start itself: |F(x0)| <= 2D/step_size", (COCOERCIVE,)),
        Theorem("proposition-3.3", "Proposition 3.3 (no noise)", (COCOERCIVE,)),
        Theorem("theorem-4.1", "Theorem 4.1 (constant batches)", (A1, A2)),
        Theorem("theorem-4.5", "Theorem 4.5 (early stopping)", (A1, COCOERCIVE, STRONG)),
        Theorem("theorem-a", "Theorem A (constant batches)", (A1, A2)),
        Theorem("theorem-a-affine", "Theorem A for affine operators (constant batches)", (A1, AFFINE)),
        Theorem("theorem-a-rounds", "Theorem A (variance of a round given by their number)", (A1, A2)),
        Theorem("theorem-b", "Theorems A and B (tapered batches)", (A1, A2)),
        Theorem("theorem-b-affine", "Theorems A and B for affine operators (tapered batches)", (A1, AFFINE)),
        Theorem("theorem-c", "Theorem C (SGDA in epochs)", (A1, COCOERCIVE, STRONG)),
        Theorem("restarts", "Restarts of Theorem A", (A1, A2, "dist(x, roots) <= |F(x)|/mu")),
        Theorem("averaging-affine", "Averaging of affine operators", (A1, AFFINE)),
        Theorem("theorem-n", "Theorem N (samples need not be cocoercive)", (A1, COCOERCIVE)),
        Theorem("start-lipschitz", "the start itself: |F(x0)| <= M D", (LIPSCHITZ,)),
        Theorem("fast-extragradient", "Fast extragradient (no noise; Lee and Kim 2021)", (MONOTONE, LIPSCHITZ)),
        Theorem("theorem-m", "Theorem M (regularised Dual-OHM)", (A1, A3, MONOTONE)),
        Theorem("theorem-m-prox", "Theorem M with a prox", ("A1 and A3 on the domain of G", MONOTONE)),
        Theorem("theorem-r", "Theorem R (recursive extragradient)", (A1, MONOTONE, LIPSCHITZ)),
        Theorem("theorem-h", "Theorem H (extragradient, then regularised Dual-OHM)", (A1, A3, MONOTONE)),
        Theorem("lemma-e", "Lemma E (extragradient)", (A1, STRONG, LIPSCHITZ)),
        Theorem(
            "averaged-extragradient", "Averaged extragradient, affine operators", (A1, MONOTONE, LIPSCHITZ, AFFINE)
        ),
    )
}


@dataclass(frozen=True, repr=False)
class Plan:
    """What a run will do and the residual that it is proved to reach.

    Attributes
    ----------
    theorem : Theorem, the result behind the bound, with its assumptions
    horizon, stop : int, N, and the number of steps after which to stop, at most N - 1
    stages : tuple of Run, a single run, or several that follow each other
    rounds, samples : int, number of consecutive oracle rounds, and samples in total
    bound : float, upper bound on the root mean square residual at the end
    exact : bool, whether `samples` is the exact number and the optimum in whole numbers; otherwise a close upper bound
    seconds : float or None, predicted time, if latency and cost of a sample were given
    rejected : tuple of (Theorem, int), other results that apply, and the samples that they would need
    findings : tuple of Finding, what else was done, such as longer steps for larger batches
    step_size, eps, budget, inputs : alpha, the target, and the arguments of `plan`
    made : Method or None, the method, if it does not follow from theorem and stages

    Examples
    --------
    >>> import dualanchor as da
    >>> plan = da.plan(eps=0.1, L=1.0, sigma=1.0, D=1.0)
    >>> plan.rounds, plan.samples, bool(plan.bound <= 0.1)
    (25, 3491, True)
    """

    theorem: Theorem
    step_size: float
    horizon: int
    stages: tuple[Run, ...]
    rounds: int
    bound: float
    exact: bool
    eps: float | None
    budget: int | None
    seconds: float | None = None
    rejected: tuple[tuple[Theorem, int], ...] = ()
    findings: tuple[Finding, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict)
    made: Method | None = None

    @classmethod
    def of(cls, theorem: Theorem, step_size: float, runs: Sequence[Run], inputs: dict[str, Any], **more: Any) -> Self:
        """The plan of runs that follow each other; `inputs` are the arguments of `plan`, `more` are other fields."""
        rounds = sum(run.horizon - 1 for run in runs)
        facts: dict[str, Any] = {
            "horizon": rounds + 1,
            "rounds": rounds,
            "bound": runs[-1].bound,
            "exact": all(run.exact for run in runs),
            "eps": inputs["eps"],
            "budget": inputs["budget"],
        }
        return cls(theorem=theorem, step_size=step_size, stages=tuple(runs), inputs=inputs, **facts | more)

    def assuming(self, assumption: str) -> Self:
        """The same plan with one more assumption."""
        theorem = replace(self.theorem, assumptions=(*self.theorem.assumptions, assumption))
        return replace(self, theorem=theorem)

    @property
    def samples(self) -> int:
        """Samples of all stages."""
        return sum(run.samples for run in self.stages)

    @property
    def stop(self) -> int:
        """The number of steps after which to stop: one for each round."""
        return self.rounds

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the theorem assumes."""
        return self.theorem.assumptions

    def method(self) -> Method:
        """The method, ready for `solve`; stop it after `stop` steps if that is less than `horizon - 1`."""
        if self.made is not None:
            return self.made
        horizons = tuple(run.horizon for run in self.stages)
        sizes = tuple(run.batch_size for run in self.stages)
        single = len(self.stages) == 1
        if self.theorem.id == "averaging-affine":
            return AveragedSGDA(self.step_size, weights="uniform")
        if self.theorem.id == "theorem-c":
            return SGDA(self.step_size, batch_size=sizes[0] if single else Stages(horizons, sizes))
        if not single:
            return RestartedDualOHM(self.step_size, horizons=horizons, batch_sizes=sizes)
        kind = DualOHM if isinstance(sizes[0], int) else TaperedDualOHM
        return kind(self.step_size, horizon=self.horizon, batch_size=sizes[0])

    @property
    def batches(self) -> dict[str, Any]:
        """Kind and parameters of the batch sizes, with the first and the last of them."""
        described = [_describe(run.batch_size) for run in self.stages]
        kind = described[0] if len(described) == 1 else {"kind": "staged", "stages": described}
        return {**kind, "first": _size(self.stages[0], 0), "last": _size(self.stages[-1], -1)}

    def sizes(self, points: int = 256) -> list[tuple[Array, Array]]:
        """For each stage at most `points` of its rounds, numbered from the start of the plan, and their batch sizes."""
        stages, before = [], 0
        for run in self.stages:
            rounds = run.horizon - 1
            ks = np.unique(np.linspace(0, rounds - 1, min(points, rounds)).astype(np.int64))
            stages.append((before + ks, np.array([_size(run, k) for k in ks.tolist()], dtype=float)))
            before += rounds
        return stages

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        names = ("horizon", "stop", "batches", "rounds", "samples", "bound", "step_size", "exact", "eps", "budget")
        return {
            "theorem": self.theorem.title,
            "theorem_id": self.theorem.id,
            "assumptions": list(self.assumptions),
            **{name: getattr(self, name) for name in (*names, "seconds")},
            "findings": [finding.to_dict() for finding in self.findings],
            "stages": [
                {
                    "horizon": run.horizon,
                    "batches": _describe(run.batch_size),
                    "samples": run.samples,
                    "bound": run.bound,
                }
                for run in self.stages
            ],
            "rejected": [{"theorem": theorem.title, "samples": samples} for theorem, samples in self.rejected],
            "other_methods": [
                {"method": name, "samples": samples, "complexity": order, "note": note}
                for name, order, samples, note in self.other_methods()
            ],
        }

    def other_methods(self) -> list[tuple[str, str, float | None, str]]:
        """Method, order, certified samples (None where only the order is known) and a note, for the same accuracy."""
        inputs = self.inputs
        eps = self.bound if self.eps is None else self.eps
        if not inputs or not eps or not isfinite(eps) or inputs.get("sigma") is None or inputs.get("growth"):
            return []  # the results of the table assume that the noise does not grow
        L, M, mu = (inputs[name] for name in ("L", "M", "mu"))
        L = M**2 / mu if L is None and M and mu else L
        table, constant = (MONOTONE_TABLE, M) if L is None else (TABLE, L)

        def samples(row: Complexity) -> float | None:
            try:
                return None if row.samples is None else row.samples(eps, constant, inputs["D"], inputs["sigma"])
            except ArithmeticError:
                return inf

        return [(row.method, row.complexity, samples(row), row.note) for row in table]

    @cached_property
    def halved(self) -> "Plan | None":
        """The plan for half of eps, where the target is an eps."""
        from dualanchor.advise.plan import plan

        if self.eps is None or not self.inputs:
            return None
        with suppress(ArgumentError):  # no plan may be possible
            return plan(**{**self.inputs, "eps": self.eps / 2})
        return None

    def __repr__(self) -> str:
        return text_lines(list(self._lines()))

    def _repr_html_(self) -> str:
        return html_table(self._lines())

    def plot(self, ax: Any = None) -> Any:
        """Plot batch sizes by round, and the bound at the end of each stage; returns the matplotlib axes."""
        return importlib.import_module("dualanchor.report.figures").plot_plan(self, ax)

    def _lines(self) -> Iterator[tuple[str, str]]:
        horizon = f" of horizon {_count(self.horizon)}" if self.stop < self.horizon - 1 else ""
        eps = f" (eps = {self.eps:g})" if self.eps else ""
        yield "theorem", self.theorem.title
        yield "assumes", "; ".join(self.assumptions)
        yield "step size", f"{self.step_size:.6g}"
        if (delta := getattr(self.made, "delta", None)) is not None:
            yield "delta", f"{delta:.6g}: steps on F(x) + delta (x - x0)"
        yield "rounds", _count(self.rounds) + horizon
        yield "batches", self._batch_line()
        yield "samples", ("" if self.exact else "≤ ") + _count(self.samples)
        yield "bound", f"root mean square residual ≤ {self.bound:.4g}{eps}"
        yield from ((finding.label, str(finding)) for finding in self.findings)
        if self.seconds is not None:
            yield "time", f"about {self.seconds:.4g} s predicted"
        if (half := self.halved) is not None and self.samples:
            rounds, samples = half.rounds / max(1, self.rounds), half.samples / self.samples
            yield "eps / 2", f"{rounds:.3g} times the rounds, {samples:.3g} times the samples"
        for theorem, cost in self.rejected:
            yield "instead of", f"{theorem}: {_count(cost)} samples"
        orders: list[str] = []
        for name, order, certified, note in self.other_methods():
            if certified is None:
                orders.append(f"{name} {order}")
            elif name != "dual-ohm, tapered":
                yield name, f"{_count(certified)} samples, {order}: {note}"
        if orders:
            yield "order only", ", ".join(orders)

    def _batch_line(self) -> str:
        first, last = self.batches["first"], self.batches["last"]
        several = f"{_count(first)} sample{'' if first == 1 else 's'}"
        if self.rounds == 0:
            return "none: the start is good enough"
        if self.batches["kind"] == "constant":
            return f"{several} in every round"
        stages = f"{len(self.stages)} stages, " if len(self.stages) > 1 else ""
        return f"{stages}from {several} in the first round to {_count(last)} in the last"


def _describe(size: Any) -> dict[str, Any]:
    """Kind and parameters of the batch sizes of a run."""
    if isinstance(size, Tapered):
        extra = {"multiple": size.multiple} if size.multiple > 1 else {}
        return {"kind": "tapered", "C": size.C, **extra, **({"tau": size.tau} if size.tau < 2 else {})}
    if isinstance(size, PowerTapered):
        return {"kind": "power", "C": size.C, "p": size.p}
    if isinstance(size, Paired):
        kind = "constant" if isinstance(size.update, Constant) else "paired"
        return {"kind": kind, "ahead": _describe(size.ahead), "update": _describe(size.update)}
    if isinstance(size, Geometric):
        return {"kind": "geometric", "c": size.c, "q": size.q}
    return {"kind": "constant", "size": size.value if isinstance(size, Constant) else size}


def _size(run: Run, k: int) -> int:
    """The size of round k, or of the last one (k = -1), without listing the others, of which there may be very many."""
    if run.horizon == 1:
        return 0
    size: Any = run.batch_size
    if isinstance(size, int):
        return size
    return int(np.ravel(size.size(np.array([k % (run.horizon - 1)]), run.horizon))[0])


def _count(value: float) -> str:
    if not isfinite(value):
        return "infinitely many"
    return f"{int(value):,}" if value < 1e9 else f"{value:.3g}"


def plan_error(rule: str, received: Any, remedy: str) -> ArgumentError:
    """The error for arguments without a plan."""
    return ArgumentError(f"plan: {rule}", received, remedy)
