"""Panels as data: a problem, a budget, and methods with the grids they are tuned over, read from TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

from dualanchor import problems
from dualanchor.core.errors import ArgumentError, DualAnchorError, unknown_name
from dualanchor.core.method import Method
from dualanchor.core.problem import Problem
from dualanchor.methods import make, registry

PAPER = ("exp1", "exp2", "exp3-low", "exp3-high")


@dataclass(frozen=True)
class Entry:
    """One curve of a panel: a method, what is fixed, and the grid that is searched for the rest.

    Attributes
    ----------
    id : str
        What the panel calls it.
    method : str
        A registered method.
    grid : dict
        Values to try, by parameter.
    fixed : dict
        Parameters that are not tuned.
    like : str or None
        Another entry whose selected parameters are taken over.
    unit : str
        What the budget counts: "evals", operator evaluations, or "draws", fresh samples.
    budget_factor : int
        By how much the budget is multiplied: 2 reads a method that evaluates twice per step as charged once.
    ours : bool
        Whether it is shown beside the paper's methods as this library's own.
    """

    id: str
    method: str
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    like: str | None = None
    unit: str = "evals"
    budget_factor: int = 1
    ours: bool = False

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values; one empty point for a method without a grid."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    def runs_like(self, other: Entry) -> bool:
        """Whether both do the same at the same point."""
        mine, theirs = ((one.method, one.fixed, one.unit, one.budget_factor) for one in (self, other))
        return mine == theirs


@dataclass(frozen=True)
class Panel:
    """A comparison under one budget of operator evaluations.

    Attributes
    ----------
    id, title : str
        How it is called.
    problem : Problem
        What every method solves.
    budget : int
        Operator evaluations of each run.
    entries : tuple of Entry
        The methods.
    seeds_per_block : int
        How many seeds run as one array.
    """

    id: str
    title: str
    problem: Problem
    budget: int
    entries: tuple[Entry, ...]
    seeds_per_block: int = 5

    def entry(self, name: str) -> Entry:
        """The entry with this id."""
        return next(entry for entry in self.entries if entry.id == name)

    def make(self, entry: Entry, point: dict[str, Any]) -> Method:
        """The method of an entry at a point of its grid."""
        return make(entry.method, self.problem, self.budget, {**entry.fixed, **point})

    def only(self, names: Sequence[str]) -> Panel:
        """The same panel with a selection of its entries."""
        return Panel(
            self.id,
            self.title,
            self.problem,
            self.budget,
            tuple(entry for entry in self.entries if entry.id in names),
            self.seeds_per_block,
        )


def paper_panel(name: str) -> Panel:
    """One of the paper's four panels."""
    if name not in PAPER:
        raise unknown_name("panel", name, (*PAPER, "appendix"))
    text = resources.files("dualanchor.paper").joinpath(f"panels/{name}.toml").read_text(encoding="utf-8")
    return parse_panel(text, f"{name}.toml", check=False)  # these are known to be right


def load_panel(path: str | Path) -> Panel:
    """A panel from a user's TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError("A panel file must be readable text", f"{path}: {error}", "Check the path") from None
    return parse_panel(text, str(path))


def parse_panel(text: str, name: str, check: bool = True) -> Panel:
    """A panel from TOML, with every point of its grids checked if asked for; an error names line and field."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"Panel file {name} must be valid TOML", error, "Mend that line") from None
    reader = _Reader(text, name, data)
    panel = reader.panel()
    if check:
        reader.check_entries(panel)
    return panel


class _Reader:
    """Turns the tables of a panel file into a Panel, and knows where each field stands."""

    _KEYS = ("id", "title", "problem", "budget", "seeds_per_block", "options", "methods")
    _ENTRY_KEYS = ("method", "grid", "fixed", "like", "unit", "budget_factor", "ours")

    def __init__(self, text: str, name: str, data: dict[str, Any]) -> None:
        self._text, self._name, self._data = text, name, data

    def panel(self) -> Panel:
        data = self._data
        for key in data:
            if key not in self._KEYS:
                self._fail(key, "is not a field of a panel", repr(key), f"Use {', '.join(self._KEYS)}")
        identity = self._get("id", str, "a name")
        if not re.fullmatch(r"[A-Za-z0-9._-]+", identity):
            self._fail("id", "must consist of letters, digits, dots and dashes", repr(identity), "Use a short name")
        budget = self._get("budget", int, "a whole number")
        if budget < 1:
            self._fail("budget", "must be at least 1", budget, "Use a whole number >= 1")
        options = self._get("options", dict, "a table", {})
        try:
            problem = problems.make(self._get("problem", str, "the name of a problem"), options)
        except DualAnchorError as error:
            self._fail("problem", "must be a problem with valid options", error, "See `dualanchor problems`")
        methods = self._get("methods", dict, "a table of methods")
        entries = tuple(self._entry(key, table) for key, table in methods.items())
        if not entries:
            self._fail("methods", "must have at least one method", "none", "Add [methods.s-dual-ohm]")
        block = self._get("seeds_per_block", int, "a whole number", 5)
        if block < 1:
            self._fail("seeds_per_block", "must be at least 1", block, "Use a whole number >= 1")
        return Panel(identity, self._get("title", str, "a text", identity), problem, budget, entries, block)

    def _entry(self, key: str, table: Any) -> Entry:
        if not isinstance(table, dict):
            self._fail(key, "must be a table", repr(table), f"Write [methods.{key}]")
        for name in table:
            if name not in self._ENTRY_KEYS:
                self._fail(name, f"is not a field of methods.{key}", repr(name), f"Use {', '.join(self._ENTRY_KEYS)}")
        grid, fixed = table.get("grid", {}), table.get("fixed", {})
        for name, value in (("grid", grid), ("fixed", fixed)):
            if not isinstance(value, dict):
                self._fail(name, f"of methods.{key} must be a table", repr(value), f"Write [methods.{key}.{name}]")
        for name, values in grid.items():
            if not isinstance(values, list) or not values:
                self._fail(name, f"of methods.{key}.grid must be a list of values", repr(values), "Write [1, 10, 100]")
        unit, factor = table.get("unit", "evals"), table.get("budget_factor", 1)
        if unit not in ("evals", "draws"):
            self._fail("unit", f"of methods.{key} must be evals or draws", repr(unit), 'Write unit = "evals"')
        if not isinstance(factor, int) or factor < 1:
            self._fail("budget_factor", f"of methods.{key} must be a whole number >= 1", repr(factor), "Leave it out")
        ours = table.get("ours", False)
        if not isinstance(ours, bool):
            self._fail("ours", f"of methods.{key} must be true or false", repr(ours), "Leave it out")
        return Entry(key, table.get("method", key), grid, fixed, table.get("like"), unit, factor, ours)

    def check_entries(self, panel: Panel) -> None:
        names = [entry.id for entry in panel.entries]
        for entry in panel.entries:
            try:
                registry.get(entry.method)
            except DualAnchorError as error:
                self._fail(entry.id, "must name a registered method", error, 'Add method = "s-dual-ohm"')
            if entry.like is not None and (entry.like not in names or panel.entry(entry.like).like is not None):
                self._fail("like", f"of methods.{entry.id} must name another method of the panel", repr(entry.like), "")
            points = panel.entry(entry.like).points() if entry.like is not None else entry.points()
            for point in points:
                try:
                    panel.make(entry, point)
                except DualAnchorError as error:
                    field_name = next(iter(point), entry.id)
                    self._fail(field_name, f"of methods.{entry.id} must make a valid method", error, "Mend the value")

    def _get(self, key: str, kind: type, what: str, default: Any = None) -> Any:
        value = self._data.get(key, default)
        if value is None:
            self._fail(key, f"must be given: {what}", "a file without it", f"Add a line {key} = ...")
        if not isinstance(value, kind) or isinstance(value, bool):
            self._fail(key, f"must be {what}", repr(value), "Mend the value")
        return value

    def _fail(self, key: str, rule: str, received: object, remedy: str) -> NoReturn:
        pattern = re.compile(rf"^\s*(\[.*\b{re.escape(key)}\b.*\]|(?:[\w\"-]+\.)*\"?{re.escape(key)}\"?\s*=)")
        lines = [number for number, line in enumerate(self._text.splitlines(), 1) if pattern.match(line)]
        where = f"line {lines[0]}" if lines else "no line"
        raise ArgumentError(f"Panel file {self._name}, {where}: field {key} {rule}", received, remedy or "Mend it")
