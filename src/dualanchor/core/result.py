"""The outcome of a run."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, prod
from pathlib import Path
from typing import Any, Self

import numpy as np

from dualanchor.core import check
from dualanchor.core.arrays import to_host
from dualanchor.core.certificate import Certificate
from dualanchor.core.citations import CITATIONS
from dualanchor.core.claim import Claim
from dualanchor.core.errors import ArgumentError, CheckpointError, UnsuccessfulError, missing_extra
from dualanchor.core.files import decoding, jsonable, read_arrays, to_json, write_arrays
from dualanchor.core.finding import Finding, Severity
from dualanchor.core.history import History, Status
from dualanchor.core.render import as_text, html_table, lines_of
from dualanchor.core.types import Array

__all__ = ["History", "Result", "Status", "jsonable", "to_json"]

_FORMAT = "dualanchor-result-1"
_KINDS = {"success": "b", "residual": "f", "samples": "f"}  # of dtypes; the others are counts
_RECORDS = ("plan", "certificate", "calibration", "claim", "findings")


@dataclass(frozen=True, repr=False, eq=False)
class Result(Mapping[str, Any]):
    """The outcome of a run, in the manner of `scipy.optimize.OptimizeResult`: attributes, and keys of the same names.

    With one replication and one method every entry is a single value; with replications, arrays over them; with
    several configurations, arrays over (configurations, replications).

    Attributes
    ----------
    x : array, the last iterate (the start for a row that diverged), an array of the library of the start
    success : bool
        Ended as asked, x finite, eps delivered if asked for, and the residual smaller than at x0: by true residuals
        where F is known, by a certificate at the front doors; else only that samples did not grow (see the findings).
    status : Status, how each row ended; `message` says it in a sentence
    nit, nfev, draws : int, steps, operator evaluations, fresh samples
    residual, residual_kind : float or None, str or None
        The norm of F at x, also as `fun`; infinite for a diverged row. It is "true" where F is known, or "estimated".
    history : History, what was recorded on the way
    state : dict of arrays, everything the method remembers, one row per run
    problem, method, seed : names and parameters, and where all randomness came from
    plan, certificate, calibration
        What the front doors planned, certified and found; None from `solve`. In a file plan and calibration are dicts.
    claim, findings : what may be claimed about the residual; what else to know, such as where samples went

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(dimension=4), da.SGDA(0.1), budget=50)
    >>> result.nfev == result["nfev"], result.x.shape, result.message
    (True, (4,), 'stopped because the next step would exceed the budget')
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
    state: dict[str, Array]
    problem: dict[str, Any]
    method: dict[str, Any]
    seed: int
    plan: Any = None
    certificate: Certificate | None = None
    calibration: Any = None
    claim: Claim | None = None
    findings: tuple[Finding, ...] = field(default=())

    def __getitem__(self, name: str) -> Any:
        if name not in tuple(self):
            raise KeyError(name)
        return getattr(self, name)

    __eq__, __hash__ = object.__eq__, object.__hash__  # arrays have no single answer

    def __iter__(self) -> Iterator[str]:
        return iter((*self.__dataclass_fields__, "message", "fun"))

    def __len__(self) -> int:
        return len(self.__dataclass_fields__) + 2

    @property
    def shape(self) -> tuple[int, ...]:
        """Leading axes: (), (replications,) or (configurations, replications)."""
        return np.shape(self.status)

    @property
    def fun(self) -> Any:
        """The residual, under SciPy's name."""
        return self.residual

    @property
    def gap(self) -> Any:
        """The upper confidence bound on the gap over a bounded set, an array over rows; None where there is none."""
        found = [one.values["upper"] for one in self.findings if one.code == "gap"]
        return np.array(found[0], dtype=float)[()] if found else None

    @property
    def message(self) -> str:
        """How the run ended, in a sentence."""
        statuses = np.atleast_1d(self.status).ravel()
        kinds = list(dict.fromkeys(statuses))
        if len(kinds) == 1:
            return str(kinds[0].value)
        return "; ".join(f"{np.count_nonzero(statuses == kind)} of {statuses.size} {kind.value}" for kind in kinds)

    def labels(self) -> list[str]:
        """What tells the configurations apart, one text each; the method's id if there is only one."""
        parameters = self.method["parameters"]
        if not isinstance(parameters, list):
            return [str(self.method["id"])]
        differ = [name for name in parameters[0] if any(one[name] != parameters[0][name] for one in parameters)]
        return [", ".join(f"{name}={one[name]}" for name in differ) or str(self.method["id"]) for one in parameters]

    def row(self, number: int) -> Self:
        """One replication of a result with several, as a result of its own."""
        if len(self.shape) != 1:
            rule = "Result.row needs a result with replications and one configuration"
            raise ArgumentError(rule, f"shape {self.shape}", "Use reps=2 or more, and one method")
        names = ("nit", "nfev", "draws", "success", *(() if self.residual is None else ("residual",)))
        return replace(
            self,
            x=self.x[number],
            status=self.status[number],
            history=self.history.of(number),
            state={name: value[number : number + 1] for name, value in self.state.items()},
            **{name: getattr(self, name)[number].item() for name in names},
        )

    def raise_for_status(self) -> Self:
        """Raise if any row did not succeed; otherwise return the result itself."""
        if not np.all(self.success):
            rule = f"{self.method['id']} on {self.problem['name']} was to succeed"
            codes = dict.fromkeys(one.code for one in self.findings if one.severity is not Severity.NOTE)
            received = ", ".join([f"a run that {self.message}", *codes])
            raise UnsuccessfulError(rule, received, "Look at result.status, result.findings and result.history", self)
        return self

    def cite(self) -> str:
        """BibTeX of what the result rests on: the library and the method's source."""
        return "\n\n".join(CITATIONS.get(key, key) for key in dict.fromkeys(("dualanchor", self.method["citation"])))

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
        return importlib.import_module("dualanchor.report.figures").plot_result(self, ax)

    def infer(self, oracle: Any, *, samples: int | None = None, confidence: float = 0.95, seed: int = 0) -> Any:
        """Standard errors and confidence intervals of the root near x: `dualanchor.infer(oracle, self, ...)`."""
        module = importlib.import_module("dualanchor.advise.infer")
        return module.infer(oracle, self, samples=samples, confidence=confidence, seed=seed)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return html_table(lines_of(self))

    def save(self, path: str | Path) -> Path:
        """Write the result to one file (npz with a JSON header), atomically; arrays go to the host for it."""
        arrays = {f"state/{name}": to_host(value) for name, value in self.state.items()}
        arrays |= {f"history/{name}": value for name, value in vars(self.history).items()}
        blocks = self.x if isinstance(self.x, tuple) else (self.x,)
        arrays |= {f"x/{i}": to_host(block) for i, block in enumerate(blocks)}
        arrays |= {name: np.asarray(getattr(self, name)) for name in ("success", "nit", "nfev", "draws")}
        if self.residual is not None:
            arrays["residual"] = np.asarray(self.residual)
        header = {
            "format": _FORMAT,
            "status": [status.name for status in np.atleast_1d(self.status).ravel()],
            "shape": list(self.shape),
            "blocks": len(blocks) if isinstance(self.x, tuple) else None,
            **{name: getattr(self, name) for name in ("residual_kind", "problem", "method", "seed")},
            **{name: jsonable(getattr(self, name)) for name in _RECORDS},
        }
        return write_arrays(path, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a result written by `save`; anything else is a CheckpointError that says why."""
        header, arrays = read_arrays(path)
        if header.get("format") != _FORMAT:
            received = f"{path} with format {header.get('format')!r}"
            raise CheckpointError("Result.load reads files written by Result.save", received, "Give a saved result")
        rule = "A saved result must have all that Result.save writes, and its parts must fit together"
        with decoding(path, rule, "Save the result again"):
            return cls(**_fields(header, arrays))


def _fields(header: dict[str, Any], arrays: dict[str, Array]) -> dict[str, Any]:
    """The fields of a result in a file; raises, whatever it may be, if one is missing or does not fit the others."""
    shape, statuses = tuple(check.count(n, "shape") for n in header["shape"]), [Status[one] for one in header["status"]]
    if len(shape) > 2 or len(statuses) != prod(shape):
        raise ValueError(f"{len(statuses)} statuses for shape {shape}")
    fields: dict[str, Any] = {"status": np.array(statuses, dtype=object).reshape(shape)[()], "residual": None}
    for name in ("success", "nit", "nfev", "draws", "residual"):
        if name in arrays or name != "residual":
            value = check.array(arrays[name], name, _KINDS.get(name, "iu"), shape, least=0)
            fields[name] = value if shape else value.item()
    if header["residual_kind"] not in ((None,) if fields["residual"] is None else ("true", "estimated")):
        raise ValueError(f"a residual of kind {header['residual_kind']!r}")
    number = None if header["blocks"] is None else check.count(header["blocks"], "blocks", 2, most=2)
    blocks = [arrays[f"x/{i}"] for i in range(number or 1)]
    x = tuple(check.array(block, "x", "f", (*shape, *block.shape[len(shape) :]))[()] for block in blocks)
    fields["x"] = x if number else x[0]
    fields["state"] = {name[6:]: array for name, array in arrays.items() if name.startswith("state/")}
    fields["history"] = history = History(**{name[8:]: arrays[name] for name in arrays if name.startswith("history/")})
    for name, column in vars(history).items():
        if column.size or name not in ("residual", "samples", "rounds", "stage"):
            least = None if name == "residual" else 0
            check.array(column, f"history/{name}", _KINDS.get(name, "iu"), (history.row.size,), least)
    if len({history.samples.size, history.rounds.size, history.stage.size}) > 1:
        raise ValueError("a history with samples, rounds and stages of different length")
    if (history.row >= len(statuses)).any():
        raise ValueError(f"a history of row {history.row.max()} for shape {shape}")
    problem, method = header["problem"], header["method"]
    each = method["parameters"] if isinstance(method["parameters"], list) else [method["parameters"]]
    words = (problem["name"], method["id"], method["citation"])
    if not all(isinstance(one, str) for one in words) or any(one.keys() != each[0].keys() for one in each):
        raise ValueError("a problem or a method without a name, or with parameters that differ in their names")
    if len(each) != (shape[0] if len(shape) == 2 else 1):
        raise ValueError(f"{len(each)} configurations for shape {shape}")
    for name in ("plan", "calibration"):
        if not isinstance(header[name], (dict, type(None))):
            raise ValueError(f"a {name} that is {header[name]!r:.60}")
    certificate = None if header["certificate"] is None else Certificate.from_dict(header["certificate"])
    if certificate is not None and np.shape(certificate.upper) != shape:
        raise ValueError(f"a certificate of shape {np.shape(certificate.upper)} for shape {shape}")
    claim = None if header.get("claim") is None else Claim.from_dict(header["claim"])
    findings = tuple(map(Finding.from_dict, header.get("findings", ())))
    for one in (*findings, claim, certificate):
        str(one)  # it must have all that its sentence says
    fields |= {name: header[name] for name in ("residual_kind", "problem", "method", "plan", "calibration")}
    seed = check.count(header["seed"], "seed", 0, most=inf)
    return {**fields, "certificate": certificate, "claim": claim, "findings": findings, "seed": seed}
