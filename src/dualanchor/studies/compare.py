"""A fair comparison on a user's own problem: equal budgets, tuned grids, different seeds for tuning and reporting."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, CapabilityError, optional_module
from dualanchor.core.method import Method
from dualanchor.core.problem import Problem
from dualanchor.core.render import html_table
from dualanchor.core.staged import Staged
from dualanchor.core.streams import Purpose, Streams
from dualanchor.methods import registry
from dualanchor.studies.panel import Entry, Panel
from dualanchor.studies.study import Event, Study, run_study


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison; prints as a table, best method first. Reports are made from its `study`."""

    study: Study

    @property
    def panel(self) -> dict[str, Any]:
        """Budget, start and methods, as in results.json."""
        (panel,) = self.study.results["panels"].values()
        return dict(panel)

    @property
    def methods(self) -> dict[str, Any]:
        """Selected parameters, final residuals and grids by method, best first."""
        rows = self.panel["methods"].items()
        return dict(sorted(rows, key=lambda row: np.nan_to_num(row[1]["final"]["mean"], nan=np.inf)))

    @property
    def best(self) -> str:
        """The method with the smallest mean final residual."""
        return next(iter(self.methods))

    def to_frame(self) -> Any:
        """The curves as a pandas DataFrame."""
        pandas = optional_module("pandas", "frame", "Comparison.to_frame")
        (curves,) = self.study.curves.values()
        frames = [pandas.DataFrame({"method": name, **vars(curve)}) for name, curve in curves.items()]
        return pandas.concat(frames, ignore_index=True)

    def __repr__(self) -> str:
        lines = [f"{self._title}, mean final residual (5% to 95%)"]
        for name, mean, spread, selected in self._rows():
            lines.append(f"  {name:20s} {mean:>10}  ({spread})  {selected}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        header = ("method", "mean final residual", "5% to 95%", "selected")
        return html_table(self._rows(), header, self._title)

    @property
    def _title(self) -> str:
        return f"{self.panel['title']}: budget {self.panel['budget']:,}, {len(self.study.results['seeds'])} seeds"

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Texts for each method: name, mean final residual, its spread and the selected parameters."""
        for name, row in self.methods.items():
            final, selected = row["final"], ", ".join(f"{key}={value}" for key, value in row["selected"].items())
            spread = f"{final['p5']:.4g} to {final['p95']:.4g}" if np.isfinite(final["mean"]) else "diverged"
            yield name, f"{final['mean']:.4g}", spread, selected


def compare(
    problem: Problem,
    methods: Sequence[str | type[Method] | Method | Entry] | None = None,
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

    Every method is tuned over its grid by the mean final residual. Parameters are selected on other seeds than those
    that are reported, unless `tune_seeds="same"`. A configuration of a grid counts as diverged if the user's function
    raises after its first step.

    Parameters
    ----------
    problem : Problem
        What every method solves. Where its operator can only be sampled, final residuals are estimated without bias
        from fresh samples outside of the budget.
    methods : list, optional
        Registered names, methods of your own (a class is tuned over its `grid`, an instance runs as it is), or entries
        with other grids; default all registered methods that can run on the problem.
    budget : int, operator evaluations of each run
    seeds : int or list of int, how many seeds are reported, or which
    jobs : int, processes; by default one per core
    fresh : bool, whether stored pieces are ignored
    progress : callable, called with an Event after each finished piece
    folder : path, optional
        Where finished pieces are stored, if the problem is a `NamedProblem`; functions have no fingerprint.

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(mu=0.1)
    >>> da.compare(problem, ["sgda", "s-dual-ohm"], budget=200, seeds=3, jobs=1).best
    'sgda'
    """
    if not isinstance(problem, Problem):
        rule = "compare: problem must be a Problem"
        raise ArgumentTypeError(rule, repr(type(problem).__name__), "Use Problem(oracle, x0)")
    budget = check.count(budget, "compare: budget")
    entries = _entries(problem, methods, budget)
    _require_numpy(problem, entries)
    panel = Panel(problem.name, f"Comparison on {problem.name}", problem, budget, tuple(entries))
    if problem.constants.L is None:
        _require_steps(panel)
    options: dict[str, Any] = {"folder": folder, "fresh": fresh, "jobs": jobs, "progress": progress}
    return Comparison(run_study([panel], seeds=seeds, tune_seeds=tune_seeds, **options))


def _require_steps(panel: Panel) -> None:
    """Raise if a method cannot be made without L; `root` chooses steps from samples, a named method does not."""
    for entry in panel.entries:
        try:
            panel.make(entry, entry.points()[0])
        except ArgumentError as error:
            raise ArgumentError(
                "compare: without L, methods need parameters of their own",
                f"{entry.id} on a problem without L ({error.parts[0]})",
                "Declare Constants(L=...) in the Problem (calibrate estimates L near the start), or pass methods with "
                "step sizes, such as SGDA(0.1)",
            ) from error


def _require_numpy(problem: Problem, entries: Sequence[Entry]) -> None:
    """Raise if a grid would start from something else than a NumPy array."""
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


def _entries(problem: Problem, methods: Any, budget: int) -> list[Entry]:
    if methods is not None and (isinstance(methods, str) or not isinstance(methods, Collection) or not methods):
        rule = "compare: methods must be a list of names or entries"
        raise ArgumentTypeError(rule, repr(methods), "Use ['s-dual-ohm', 'sgda']")
    if methods is None:
        methods = [cls for cls in registry.all().values() if cls.compared and _can_run(problem, cls, budget)]
    if not methods:
        rule = "compare: a method must be able to run on the problem"
        raise ArgumentError(rule, repr(problem), "Declare Constants(L=...); calibrate estimates L")
    entries = [_entry(problem, method, budget) for method in methods]
    ids = [entry.id for entry in entries]
    if repeated := next((name for name in ids if ids.count(name) > 1), None):
        rule, remedy = "compare: each method may stand once", "Use dualanchor.studies.panel.Entry with ids of your own"
        raise ArgumentError(rule, f"{repeated} {ids.count(repeated)} times", remedy)
    return entries


def _entry(problem: Problem, method: Any, budget: int) -> Entry:
    if isinstance(method, Entry):
        return method
    if isinstance(method, Method):
        fixed = {field.name: getattr(method, field.name) for field in fields(method)}  # type: ignore[arg-type]
        return Entry(type(method).id, type(method), fixed=fixed)
    cls = method if isinstance(method, type) and issubclass(method, Method) else registry.get(method)
    return Entry(cls.id, cls, cls.grid(problem, budget))


def _can_run(problem: Problem, cls: type[Method], budget: int) -> bool:
    """Whether constants, oracle and budget are enough for a method to take a step on the problem."""
    try:
        method = cls.for_problem(problem, budget)
        streams = Streams(0, np.arange(1), Purpose.PILOT, problem.dimension)
        instance = problem.instance(streams)
        replayable = "replay" not in method.needs or instance.oracle.is_replayable(instance.x0, streams)
        method.check_oracle(replayable, instance.oracle.components)
    except (CapabilityError, ArgumentError):
        return False
    return isinstance(method, Staged) or bool(np.max(method.cost(0, None, True).evals) <= budget)
