"""A fair comparison on a user's own problem: equal budget, tuned grids, other seeds for tuning than for reporting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CapabilityError, missing_extra
from dualanchor.core.method import Method
from dualanchor.core.problem import Problem
from dualanchor.core.streams import Purpose, Streams
from dualanchor.methods import registry
from dualanchor.problems import registry as named
from dualanchor.run.stop import require_count
from dualanchor.studies.panel import Entry, Panel
from dualanchor.studies.study import Event, Study, run_study


@dataclass(frozen=True)
class Comparison:
    """What a comparison found; prints as a table, best method first.

    Attributes
    ----------
    study : Study
        Results and curves in the form that reports are made from.
    """

    study: Study

    @property
    def panel(self) -> dict[str, Any]:
        """Budget, start and methods, as in results.json."""
        (panel,) = self.study.results["panels"].values()
        return dict(panel)

    @property
    def methods(self) -> dict[str, Any]:
        """Selected parameters, final residuals and grids by method, best first."""
        ranked = sorted(
            self.panel["methods"].items(), key=lambda item: np.nan_to_num(item[1]["final"]["mean"], nan=np.inf)
        )
        return dict(ranked)

    @property
    def best(self) -> str:
        """The method with the smallest mean final residual."""
        return next(iter(self.methods))

    def to_frame(self) -> Any:
        """The curves as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise missing_extra("pandas", "frame", "Comparison.to_frame") from None
        (curves,) = self.study.curves.values()
        frames = [
            pandas.DataFrame({"method": name, "seed": c.seed, "k": c.k, "evals": c.evals, "residual": c.residual})
            for name, c in curves.items()
        ]
        return pandas.concat(frames, ignore_index=True)

    def __repr__(self) -> str:
        panel = self.panel
        seeds = self.study.results["seeds"]
        lines = [f"{panel['title']}: budget {panel['budget']:,}, {len(seeds)} seeds, mean final residual (5% to 95%)"]
        for name, row in self.methods.items():
            final = row["final"]
            selected = ", ".join(f"{key}={value}" for key, value in row["selected"].items())
            lines.append(f"  {name:20s} {final['mean']:10.4g}  ({final['p5']:.4g} to {final['p95']:.4g})  {selected}")
        return "\n".join(lines)


def compare(
    problem: Problem,
    methods: Sequence[str | Entry] | None = None,
    *,
    budget: int,
    seeds: int | Sequence[int] = 10,
    tune_seeds: str = "disjoint",
    jobs: int | None = None,
    folder: Path | None = None,
    fresh: bool = False,
    progress: Callable[[Event], None] | None = None,
) -> Comparison:
    """Compare methods on a problem under one budget of operator evaluations.

    Every method is tuned over its grid by the mean final residual. Parameters are selected on other seeds than
    those that are reported, unless `tune_seeds="same"`.

    Parameters
    ----------
    problem : Problem
        What every method solves. Where its operator can only be sampled, final residuals are estimated without bias
        from fresh samples outside of the budget.
    methods : list of str or Entry, optional
        Registered names, or entries with grids of your own; default all that can run on the problem.
    budget : int
        Operator evaluations of each run.
    seeds : int or list of int
        How many seeds are reported, or which.
    tune_seeds : "disjoint" or "same"
        On which seeds parameters are selected.
    jobs : int, optional
        Processes; default as many as there are cores.
    folder : path, optional
        Where finished pieces are kept; only for named problems, since functions have no fingerprint.
    fresh : bool
        Whether to ignore what is kept.
    progress : callable, optional
        Told of each piece of work.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(mu=0.1)
    >>> da.compare(problem, ["sgda", "s-dual-ohm"], budget=200, seeds=3, jobs=1).best
    'sgda'
    """
    if not isinstance(problem, Problem):
        raise ArgumentTypeError(
            "compare: problem must be a Problem", repr(type(problem).__name__), "Use Problem(oracle, x0)"
        )
    require_count(budget, "compare", "budget", 1)
    entries = _entries(problem, methods, budget)
    _require_numpy(problem, entries)
    panel = Panel(problem.name, f"Comparison on {problem.name}", problem, budget, tuple(entries))
    keep = folder if type(problem) in named.all().values() else None  # the code of others has no fingerprint
    study = run_study(
        [panel], seeds=seeds, tune_seeds=tune_seeds, folder=keep, fresh=fresh, jobs=jobs, progress=progress
    )
    return Comparison(study)


def _require_numpy(problem: Problem, entries: Sequence[Entry]) -> None:
    """Raise if a grid would run from a start that is no NumPy array."""
    tuned = [entry.id for entry in entries if len(entry.points()) > 1]
    if problem.numpy_only or not tuned:
        return
    start = problem.instance(Streams(0, np.arange(1), Purpose.INSTANCE)).x0
    if arrays.is_foreign(start):
        raise CapabilityError(
            "compare: methods with parameters to tune need a NumPy start, since a grid runs as one array",
            f"a problem that starts from a {type(start).__name__}, and {', '.join(tuned)}",
            "Make the problem with a NumPy x0 and a function of NumPy arrays",
        )


def _entries(problem: Problem, methods: Sequence[str | Entry] | None, budget: int) -> list[Entry]:
    if isinstance(methods, (str, Method)) or (methods is not None and len(methods) == 0):
        raise ArgumentTypeError(
            "compare: methods must be a list of names or entries", repr(methods), "Use ['s-dual-ohm', 'sgda']"
        )
    if methods is not None:
        return [
            one if isinstance(one, Entry) else Entry(one, one, registry.get(one).grid(problem, budget))
            for one in methods
        ]
    able = []
    for name, cls in registry.all().items():
        if not cls.compared:
            continue
        try:
            _try_out(problem, cls, budget)
        except (CapabilityError, ArgumentError):  # it needs a constant that is not declared, or a larger budget
            continue
        able.append(Entry(name, name, cls.grid(problem, budget)))
    if not able:
        raise ArgumentError(
            "compare: a method must be able to run on the problem",
            repr(problem),
            "Declare Constants(L=...); calibrate estimates L",
        )
    return able


def _try_out(problem: Problem, cls: type[Method], budget: int) -> None:
    """Raise if the problem's oracle cannot do what the method needs."""
    method = cls.for_problem(problem, budget)
    streams = Streams(0, np.arange(1), Purpose.PILOT, problem.dimension)
    instance = problem.instance(streams)
    replayable = "replay" not in method.needs or instance.oracle.is_replayable(instance.x0, streams)
    method.check_oracle(replayable, instance.oracle.components)
    if np.max(method.cost(0, None, True).evals) > budget:
        raise ArgumentError(f"{cls.id}: the first step must fit into the budget", budget, "Use a larger one")
