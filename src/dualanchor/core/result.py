"""What comes out: status, history, result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor.core.arrays import to_host
from dualanchor.core.citations import CITATIONS
from dualanchor.core.errors import CheckpointError, UnsuccessfulError, missing_extra
from dualanchor.core.files import read_arrays, write_arrays
from dualanchor.core.types import Array, IntArray


class Status(Enum):
    """How a row of a run ended. The value is the sentence shown to the user."""

    RUNNING = "still running"
    HORIZON = "reached its horizon"
    BUDGET = "stopped because the next step would exceed the budget"
    MAX_SAMPLES = "stopped at max_samples: the next stage would exceed it"
    STEPS = "took the number of steps asked for"
    TARGET = "reached the target residual"
    WALL_TIME = "stopped because the time was up"
    CALLBACK = "stopped because the callback asked for it"
    DIVERGED = "diverged: an iterate became infinite or too large to square; try a smaller step"
    FAILED = "stopped because the oracle failed; this is the iterate before the failure"
    INTERRUPTED = "interrupted by the user; this is the last complete iterate"

    @property
    def ended_as_asked(self) -> bool:
        """Whether the run ended by a rule of its own."""
        return self not in _UNWANTED


_UNWANTED = frozenset({Status.RUNNING, Status.DIVERGED, Status.FAILED, Status.INTERRUPTED})


@dataclass(frozen=True, repr=False)
class History:
    """What was recorded on the way, as a tidy table: one line per row of the run and recorded step.

    Attributes
    ----------
    row : array of int
        Row of the run, configuration-major.
    k, draws, evals : array of int
        Steps taken, fresh samples, operator evaluations.
    residual : array of float
        The true residual, evaluated outside of the budget; empty where F is not known.
    """

    row: IntArray
    k: IntArray
    draws: IntArray
    evals: IntArray
    residual: Array

    def __len__(self) -> int:
        return self.row.size

    def __repr__(self) -> str:
        if not len(self):
            return "History(0 points)"
        rows, first = np.unique(self.row, return_index=True)
        facts = [f"{_number(len(self), 'point')} of {_number(rows.size, 'row')}"]
        for name, column in (("k", self.k), ("evals", self.evals)):
            facts.append(f"{name} = {column.min():,} to {column.max():,}")
        if self.residual.size:
            last = len(self) - 1 - np.unique(self.row[::-1], return_index=True)[1]
            begin, end = self.residual[first].mean(), self.residual[last].mean()
            facts.append(f"{'mean ' if rows.size > 1 else ''}residual = {begin:.4g} to {end:.4g}")
        return f"History({', '.join(facts)})"

    def of(self, row: int) -> History:
        """The lines of one row of the run."""
        chosen = self.row == row
        residual = self.residual[chosen] if self.residual.size else self.residual
        return History(self.row[chosen], self.k[chosen], self.draws[chosen], self.evals[chosen], residual)

    def columns(self) -> dict[str, Array]:
        """The columns by name."""
        columns = {name: getattr(self, name) for name in ("row", "k", "draws", "evals")}
        return columns if not self.residual.size and len(self) else {**columns, "residual": self.residual}


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of a run, in the manner of `scipy.optimize.OptimizeResult`.

    With one replication and one method every entry is a single value; with replications, arrays over them; with
    several configurations, arrays over (configurations, replications).

    Attributes
    ----------
    x : array
        The last iterate, an array of the library of the start.
    success : bool or array of bool
        Ended as asked, finite, and at the target if there was one.
    status : Status or array of Status
        How each row ended.
    nit, nfev, draws : int or array of int
        Steps, operator evaluations, fresh samples.
    residual : float, array of float or None
        The norm of F at x; infinite for a diverged row.
    residual_kind : str or None
        "true" where F is known, "estimated" from fresh samples, None where there is no residual.
    history : History
        What was recorded on the way.
    state : dict of arrays
        Everything the method remembers, one row per run.
    problem, method : dict
        Names and parameters.
    seed : int
        Where all randomness came from.
    plan, certificate, calibration
        What the front doors planned, claim and saw; None from `solve`. From a file they are plain dicts.
    why, sense : str or None
        Why a front door chose the method, and in which sense eps (or the plan's bound) was delivered.
    warnings, notes : tuple of str
        What speaks against the assumptions, and what a reader might overlook.
    """

    x: Any
    success: Any
    status: Any
    nit: Any
    nfev: Any
    draws: Any
    residual: Any
    residual_kind: str | None
    history: History
    state: dict[str, Array] = field(repr=False)
    problem: dict[str, Any]
    method: dict[str, Any]
    seed: int
    plan: Any = None
    certificate: Any = None
    calibration: Any = None
    why: str | None = None
    sense: str | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Leading axes: (), (replications,) or (configurations, replications)."""
        return np.shape(self.status)

    @property
    def claim(self) -> str | None:
        """What is claimed, as `sense` has it."""
        return self.sense

    @property
    def message(self) -> str:
        """How the run ended, in a sentence."""
        statuses = np.atleast_1d(self.status).ravel()
        kinds = list(dict.fromkeys(statuses))
        if len(kinds) == 1:
            return str(kinds[0].value)
        return "; ".join(f"{np.count_nonzero(statuses == kind)} of {statuses.size} {kind.value}" for kind in kinds)

    def raise_for_status(self) -> Result:
        """Raise if any row did not succeed; otherwise return the result itself."""
        if not np.all(self.success):
            raise UnsuccessfulError(
                f"{self.method['id']} on {self.problem['name']} was to end as asked",
                f"a run that {self.message}",
                "Look at result.status and result.history",
                self,
            )
        return self

    def cite(self) -> str:
        """BibTeX of what the result rests on: the library and the method's source."""
        return "\n\n".join(CITATIONS[key] for key in ("dualanchor", self.method["citation"]))

    def to_frame(self) -> Any:
        """The history as a pandas DataFrame, with configuration and replication for each line."""
        try:
            import pandas
        except ImportError:
            raise missing_extra("pandas", "frame", "Result.to_frame") from None
        columns: dict[str, Any] = dict(self.history.columns())
        row, replications = columns.pop("row"), self.shape[-1] if self.shape else 1
        return pandas.DataFrame({"configuration": row // replications, "replication": row % replications, **columns})

    def plot(self, ax: Any = None) -> Any:
        """Plot residuals, recorded or estimated, against samples, and the certificate; returns the matplotlib axes."""
        return plotter()(self, ax)

    def save(self, path: str | Path) -> Path:
        """Write the result to one file (npz with a JSON header), atomically; arrays go to the host for it."""
        arrays = {f"state/{name}": to_host(value) for name, value in self.state.items()}
        arrays |= {f"history/{name}": value for name, value in vars(self.history).items()}
        blocks = self.x if isinstance(self.x, tuple) else (self.x,)
        arrays |= {f"x/{i}": to_host(block) for i, block in enumerate(blocks)} | {"success": np.asarray(self.success)}
        arrays |= {name: np.asarray(getattr(self, name)) for name in ("nit", "nfev", "draws")}
        if self.residual is not None:
            arrays["residual"] = np.asarray(self.residual)
        names = [status.name for status in np.atleast_1d(self.status).ravel()]
        header = {
            "format": _FORMAT,
            "status": names,
            "shape": list(self.shape),
            "residual_kind": self.residual_kind,
            "problem": self.problem,
            "method": self.method,
            "seed": self.seed,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "why": self.why,
            "sense": self.sense,
            "blocks": len(blocks) if isinstance(self.x, tuple) else None,
            **{name: _plain_facts(getattr(self, name)) for name in ("plan", "certificate", "calibration")},
        }
        if hasattr(self.certificate, "claim"):
            header["certificate"]["claim"] = self.certificate.claim
        return write_arrays(path, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a result written by `save`."""
        header, arrays = read_arrays(path)
        if header.get("format") != _FORMAT:
            raise CheckpointError(
                "Result.load reads files written by Result.save",
                f"{path} with format {header.get('format')!r}",
                "Give the path of a saved result",
            )
        shape = tuple(header["shape"])
        statuses = np.array([Status[name] for name in header["status"]], dtype=object)
        history = {name: arrays[f"history/{name}"] for name in ("row", "k", "draws", "evals", "residual")}

        def value(name: str) -> Any:
            return arrays[name] if shape else arrays[name][()]

        blocks = tuple(arrays[f"x/{i}"][()] for i in range(header["blocks"] or 1))
        return cls(
            x=blocks if header["blocks"] else blocks[0],
            success=value("success") if shape else bool(value("success")),
            status=statuses.reshape(shape) if shape else statuses[0],
            nit=value("nit") if shape else int(value("nit")),
            nfev=value("nfev") if shape else int(value("nfev")),
            draws=value("draws") if shape else int(value("draws")),
            residual=value("residual") if "residual" in arrays else None,
            residual_kind=header["residual_kind"],
            history=History(**history),
            state={name[6:]: array for name, array in arrays.items() if name.startswith("state/")},
            problem=header["problem"],
            method=header["method"],
            seed=header["seed"],
            notes=tuple(header["notes"]),
            warnings=tuple(header["warnings"]),
            **{name: header[name] for name in ("why", "sense", "plan", "certificate", "calibration")},
        )

    def __repr__(self) -> str:
        lines = list(self._lines())
        width = max(10, *(len(name) for name, _ in lines))
        return "\n".join(f"{name:>{width}}: {text}" for name, text in lines)

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "method", f"{self.method['id']} on {self.problem['name']}"
        if self.why is not None:
            yield "why", self.why
        yield "status", self.message
        yield "success", _span(self.success, "d") if self.shape else str(bool(self.success))
        if self.why is None:
            yield from ((name, _span(getattr(self, name), ",")) for name in ("nit", "nfev", "draws"))
        else:
            yield "rounds", _span(self.nit, ",")
            yield "samples", _span(self.draws, ",")
            if not np.array_equal(self.nfev, self.draws):
                yield "evaluations", f"{_span(self.nfev, ',')} (some samples more than once)"
        if self.residual is None:
            yield "residual", "not known: the operator can only be sampled"
        else:
            hidden = self.residual_kind == "estimated" and np.all(np.asarray(self.residual) == 0)
            known = f"{_span(self.residual, '.4g')} ({self.residual_kind})"
            yield "residual", "not visible above the noise (estimated)" if hidden else known
        if self.sense is not None:
            yield "claim", self.sense
        if self.certificate is not None:
            loaded = isinstance(self.certificate, dict)
            yield "certificate", str(self.certificate.get("claim")) if loaded else self.certificate.claim
        names = ("u", "v") if isinstance(self.x, tuple) else ("x",)
        for name, block in zip(names, self.x if isinstance(self.x, tuple) else (self.x,), strict=True):
            if self.shape or (np.ndim(block) > 1 and prod(block.shape) > 12):
                yield name, f"array of shape {tuple(block.shape)}"
            else:
                with np.printoptions(precision=4, threshold=12, edgeitems=2):
                    yield name, str(block).replace("\n", "")
        for label, residual in self._by_configuration():
            yield label, f"mean residual {residual:.4g}"
        for text in self.warnings:
            yield "warning", text
        for note in self.notes:
            yield "note", note

    def labels(self) -> list[str]:
        """What tells the configurations apart, one text each; the method's id if there is only one."""
        parameters = self.method["parameters"]
        if not isinstance(parameters, list):
            return [str(self.method["id"])]
        differ = [name for name in parameters[0] if any(one[name] != parameters[0][name] for one in parameters)]
        return [", ".join(f"{name}={one[name]}" for name in differ) or str(self.method["id"]) for one in parameters]

    def _by_configuration(self) -> list[tuple[str, float]]:
        if len(self.shape) < 2 or self.residual is None or self.shape[0] > 20:
            return []
        return list(zip(self.labels(), self.residual.mean(axis=1), strict=True))


_FORMAT = "dualanchor-result-1"


def _no_plotter() -> Callable[..., Any]:
    raise missing_extra("matplotlib", "plot", "Result.plot")


plotter: Callable[[], Callable[..., Any]] = _no_plotter
"""Gives the function behind `Result.plot`; the package fills it in, so that core imports no plotting."""


def _number(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _span(values: Any, form: str) -> str:
    if np.ndim(values) == 0:
        return format(values, form)
    values = np.asarray(values)
    if values.dtype == bool:
        return f"{np.count_nonzero(values)} of {values.size}"
    low, high = values.min(), values.max()
    if low == high:
        return format(low, form)
    median = format(np.median(values), ",.0f" if form == "," else ".4g")
    return f"{format(low, form)} to {format(high, form)}, median {median}"


def _plain_facts(value: Any) -> Any:
    return jsonable(value.to_dict()) if hasattr(value, "to_dict") else jsonable(value)


def jsonable(value: Any) -> Any:
    """The value with arrays as lists, records as their text and non-finite numbers as null."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return repr(value)


def to_json(value: Any, **options: Any) -> str:
    """JSON text in which a non-finite number is null."""
    return json.dumps(jsonable(value), allow_nan=False, ensure_ascii=False, **options)
