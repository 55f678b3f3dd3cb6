"""Panels as data: a problem, a budget, and methods with the grids they are tuned over, read from TOML."""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

from dualanchor import problems
from dualanchor.core.errors import ArgumentError, DualAnchorError
from dualanchor.core.method import Method
from dualanchor.core.problem import Problem
from dualanchor.methods import registry


@dataclass(frozen=True)
class Entry:
    """One curve of a panel: a method, its fixed parameters, and the grid over which the others are tuned."""

    id: str
    method: str | type[Method]  # a registered name, or a class of your own
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # values to try, by parameter
    fixed: dict[str, Any] = field(default_factory=dict)  # parameters that are not tuned
    like: str | None = None  # the id of another entry, whose selected parameters it uses instead of a grid
    unit: str = "evals"  # what the budget counts: operator evaluations, or "draws", fresh samples
    budget_factor: int = 1  # multiplies the budget: 2 charges a method that evaluates twice per step only once
    ours: bool = False  # whether it is marked as this library's own, not in the paper

    def __post_init__(self) -> None:
        if not self.id or not self.id.isprintable():
            raise ArgumentError("The name of a method in a panel must be printable", repr(self.id), "Use another")

    @property
    def cls(self) -> type[Method]:
        return registry.get(self.method) if isinstance(self.method, str) else self.method

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values; one empty point for a method without a grid."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]

    def runs_like(self, other: Self) -> bool:
        """Whether runs of both entries at the same parameters have the same numbers."""
        names = ("method", "fixed", "unit", "budget_factor")
        return all(getattr(self, name) == getattr(other, name) for name in names)


@dataclass(frozen=True)
class Panel:
    """A comparison under one budget of operator evaluations for each run."""

    id: str
    title: str
    problem: Problem
    budget: int
    entries: tuple[Entry, ...]
    seeds_per_block: int | None = None  # at most this number of seeds in one array; None: as many as fit the cache

    def entry(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.id == name)

    def make(self, entry: Entry, point: dict[str, Any]) -> Method:
        return entry.cls.for_problem(self.problem, self.budget, **{**entry.fixed, **point})

    def only(self, names: Sequence[str]) -> Self:
        return replace(self, entries=tuple(entry for entry in self.entries if entry.id in names))


def load_panel(path: str | Path) -> Panel:
    """A panel from a user's TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError("A panel file must be readable text", f"{path}: {error}", "Check the path") from None
    return parse_panel(text, str(path))


def parse_panel(text: str, name: str, check: bool = True) -> Panel:
    """A panel from TOML; with `check`, every point of its grids is tried. An error names line and field."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"Panel file {name} must be valid TOML", error, "Fix that line") from None
    reader = _Reader(text, name)
    panel = reader.panel(data)
    if check:
        reader.check_entries(panel)
    return panel


class _PanelField(NamedTuple):
    """A field of a table in the file: its type, the rule for messages, its default (None: required), and a check."""

    kind: type
    rule: str
    default: Any = None
    fits: Callable[[Any], Any] = lambda value: True


_PANEL = {
    "id": _PanelField(
        str, "a short name of letters, digits, dots and dashes", fits=re.compile(r"[A-Za-z0-9._-]+").fullmatch
    ),
    "title": _PanelField(str, "a text", ""),
    "budget": _PanelField(int, "a whole number >= 1", fits=lambda value: value >= 1),
    "problem": _PanelField(str, "the name of a problem"),
    "seeds_per_block": _PanelField(int, "a whole number >= 1", 0, lambda value: value >= 1),
    "options": _PanelField(dict, "a table", {}),
    "methods": _PanelField(dict, "a table with at least one method", fits=bool),
}
_ENTRY = {
    "method": _PanelField(str, "the name of a method", ""),
    "grid": _PanelField(dict, "a table", {}),
    "fixed": _PanelField(dict, "a table", {}),
    "like": _PanelField(str, "the name of another method of the panel", ""),
    "unit": _PanelField(str, "evals or draws", "evals", lambda value: value in ("evals", "draws")),
    "budget_factor": _PanelField(int, "a whole number >= 1", 1, lambda value: value >= 1),
    "ours": _PanelField(bool, "true or false", False),
}


class _Reader:
    """Turns the tables of a panel file into a Panel; errors name the line of a field."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name

    def panel(self, data: dict[str, Any]) -> Panel:
        given = self._table(data, _PANEL, "a panel")
        try:
            problem = problems.make(given["problem"], given["options"])
        except DualAnchorError as error:
            self._fail("problem", "must be a problem with valid options", error, "See `dualanchor problems`")
        entries = tuple(self._entry(key, table) for key, table in given["methods"].items())
        title, block = given["title"] or given["id"], given["seeds_per_block"] or None
        return Panel(given["id"], title, problem, given["budget"], entries, block)

    def _entry(self, key: str, table: Any) -> Entry:
        if not isinstance(table, dict):
            self._fail(key, "must be a table", repr(table), f"Write [methods.{key}]")
        given = self._table(table, _ENTRY, f"methods.{key}", f"of methods.{key} ")
        for name, values in given["grid"].items():
            if not isinstance(values, list) or not values:
                self._fail(name, f"of methods.{key}.grid must be a list of values", repr(values), "Write [1, 10, 100]")
        return Entry(key, **{**given, "method": given["method"] or key, "like": given["like"] or None})

    def _table(self, table: dict[str, Any], fields: dict[str, _PanelField], what: str, of: str = "") -> dict[str, Any]:
        """The values of all fields; raises for the first that does not fit."""
        for key in table:
            if key not in fields:
                self._fail(key, f"is not a field of {what}", repr(key), f"Use {', '.join(fields)}")
        for key, (kind, rule, default, fits) in fields.items():
            if key not in table and default is None:
                self._fail(key, f"must be given: {rule}", "a file without it", f"Add a line {key} = ...")
            if key in table and not (type(table[key]) is kind and fits(table[key])):
                self._fail(key, f"{of}must be {rule}", repr(table[key]), "Fix the value")
        return {key: table.get(key, field.default) for key, field in fields.items()}

    def check_entries(self, panel: Panel) -> None:
        """Raise if an entry names an unknown method or entry, or has a point that does not make a valid method."""
        tuned = {entry.id: entry for entry in panel.entries if entry.like is None}
        for entry in panel.entries:
            try:
                registry.get(str(entry.method))
            except DualAnchorError as error:
                self._fail(entry.id, "must name a registered method", error, 'Add method = "s-dual-ohm"')
            if (source := tuned.get(entry.like or entry.id)) is None:
                rule = f"of methods.{entry.id} must name another method of the panel"
                self._fail("like", rule, repr(entry.like), "Name one with a grid of its own")
            for point in source.points():
                try:
                    panel.make(entry, point)
                except DualAnchorError as error:
                    name = next(iter(point), entry.id)
                    self._fail(name, f"of methods.{entry.id} must make a valid method", error, "Fix the value")

    def _fail(self, key: str, rule: str, received: object, remedy: str) -> NoReturn:
        pattern = re.compile(rf"^\s*(\[.*\b{re.escape(key)}\b.*\]|(?:[\w\"-]+\.)*\"?{re.escape(key)}\"?\s*=)")
        lines = [number for number, line in enumerate(self._text.splitlines(), 1) if pattern.match(line)]
        where = f"line {lines[0]}" if lines else "no line"
        raise ArgumentError(f"Panel file {self._name}, {where}: field {key} {rule}", received, remedy)
