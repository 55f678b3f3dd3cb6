"""The outcome of a run."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from pathlib import Path
from typing import Any, Self

import numpy as np

from dualanchor.core import check
from dualanchor.core.arrays import to_host
from dualanchor.core.certificate import Certificate
from dualanchor.core.citations import CITATIONS
from dualanchor.core.claim import Claim, ClaimKind
from dualanchor.core.errors import ArgumentError, CheckpointError, UnsuccessfulError, optional_module
from dualanchor.core.files import below, decoding, jsonable, read_arrays, to_json, write_arrays
from dualanchor.core.finding import Finding, Severity
from dualanchor.core.history import History, Status
from dualanchor.core.nested import flatten, row_of, unflatten
from dualanchor.core.render import html_table, lines_of, text_lines
from dualanchor.core.types import Array

__all__ = ["History", "Result", "Status", "jsonable", "to_json"]

_FORMAT = "dualanchor-result-1"
_KINDS = {"success": "b", "residual": "f"}  # kinds of dtypes in a file; all others are counts
_RECORDS = ("plan", "certificate", "calibration", "claim", "findings")  # written to the header of a file


@dataclass(frozen=True, repr=False, eq=False)
class Result(Mapping[str, Any]):
    """The outcome of a run, like `scipy.optimize.OptimizeResult`: attributes, and keys of the same names.

    With one replication and one method every entry is a single value; with several replications, an array over them;
    with several configurations, an array over (configurations, replications).

    Attributes
    ----------
    x : array, the last iterate (for a row that diverged, the start), of the same library as the start
    success : bool
        Ended as asked, x finite, eps delivered if asked for, and the residual smaller than at x0: by true residuals
        where F is known, by a certificate at the front doors; else only that samples did not grow (see the findings).
    status : Status, how each row ended; `message` is the sentence for it
    nit, nfev, draws : int, steps, operator evaluations, fresh samples
    residual, residual_kind : float or None, str or None
        The norm of F at x, also as `fun`; infinite for a diverged row. Its kind is "true" (F is known) or "estimated".
        An estimate of 0 means that the residual is not visible above the noise, not that x is a root.
    history : History, what was recorded along the run
    state : dict of arrays, the final state of the method, one row per run
    problem, method, seed : names and parameters, and the seed of all randomness
    plan, certificate, calibration
        Set by the front doors, None from `solve`. After `load`, plan and calibration are dicts.
    claim, findings : what is claimed about the residual; what else was noticed, such as how samples were spent

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

    __eq__, __hash__ = object.__eq__, object.__hash__  # identity: comparing arrays gives arrays

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
        """The upper confidence bound on the gap over a bounded set, in the shape of `status`; None if not computed."""
        bounds = [finding.values["upper"] for finding in self.findings if finding.code == "gap"]
        return np.array(bounds[0], dtype=float)[()] if bounds else None

    @property
    def message(self) -> str:
        """How the run ended, in a sentence."""
        statuses = np.atleast_1d(self.status).ravel()
        kinds = list(dict.fromkeys(statuses))
        if len(kinds) == 1:
            return str(kinds[0].value)
        return "; ".join(f"{np.count_nonzero(statuses == kind)} of {statuses.size} {kind.value}" for kind in kinds)

    def labels(self) -> list[str]:
        """A label for each configuration: the parameters that differ, or the method's id."""
        method_id, configurations = str(self.method["id"]), self.method["parameters"]
        if not isinstance(configurations, list):
            return [method_id]
        first = configurations[0]
        differing = [name for name in first if any(other[name] != first[name] for other in configurations)]
        return [", ".join(f"{name}={one[name]}" for name in differing) or method_id for one in configurations]

    def row(self, number: int) -> Self:
        """One replication of a result with several, as a result of its own."""
        if len(self.shape) != 1:
            rule = "Result.row needs a result with replications and one configuration"
            raise ArgumentError(rule, f"shape {self.shape}", "Use reps=2 or more, and one method")
        names = ("nit", "nfev", "draws", "success", *(() if self.residual is None else ("residual",)))
        numbers: dict[str, Any] = {name: getattr(self, name)[number].item() for name in names}
        certificate, claim = self.certificate and self.certificate.row(number), self.claim
        if certificate is not None and claim is not None and claim.kind is ClaimKind.NOT_REACHED:  # by some of the rows
            kind = ClaimKind.CERTIFICATE if numbers["success"] else claim.kind
            claim = replace(claim, kind=kind, bound=certificate.upper if certificate.upper < inf else None)
        return replace(
            self,
            x=row_of(self.x, number),
            status=self.status[number],
            history=self.history.of(number),
            state={name: value[number : number + 1] for name, value in self.state.items()},
            certificate=certificate,
            claim=claim,
            findings=tuple(finding.row(number) for finding in self.findings),
            **numbers,
        )

    def raise_for_status(self) -> Self:
        """Raise if any row did not succeed; otherwise return the result itself."""
        if not np.all(self.success):
            rule = f"{self.method['id']} on {self.problem['name']} was to succeed"
            codes = dict.fromkeys(item.code for item in self.findings if item.severity is not Severity.NOTE)
            received = ", ".join([f"a run that {self.message}", *codes])
            raise UnsuccessfulError(rule, received, "Look at result.status, result.findings and result.history", self)
        return self

    def cite(self) -> str:
        """BibTeX entries for the library and the method's source."""
        return "\n\n".join(CITATIONS.get(key, key) for key in dict.fromkeys(("dualanchor", self.method["citation"])))

    def to_frame(self) -> Any:
        """The history as a pandas DataFrame, with configuration and replication for each line."""
        pandas = optional_module("pandas", "frame", "Result.to_frame")
        columns: dict[str, Any] = dict(self.history.columns())
        row, replications = columns.pop("row"), self.shape[-1] if self.shape else 1
        return pandas.DataFrame({"configuration": row // replications, "replication": row % replications, **columns})

    def plot(self, ax: Any = None) -> Any:
        """Plot residuals, recorded or estimated, against samples, and the certificate; returns the matplotlib axes."""
        return importlib.import_module("dualanchor.report.figures").plot_result(self, ax)

    def infer(
        self,
        oracle: Any,
        *,
        args: Sequence[Any] = (),
        samples: int | None = None,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> Any:
        """Standard errors and confidence intervals of the root near x: `dualanchor.infer(oracle, self, ...)`."""
        module = importlib.import_module("dualanchor.advise.infer")
        return module.infer(oracle, self, args=args, samples=samples, confidence=confidence, seed=seed)

    def __repr__(self) -> str:
        return text_lines(lines_of(self), min_width=10)

    def _repr_html_(self) -> str:
        return html_table(lines_of(self))

    def save(self, path: str | Path) -> Path:
        """Write the result to one file (npz with a JSON header), atomically; arrays are written as NumPy arrays."""
        arrays = {f"state/{name}": to_host(value) for name, value in self.state.items()}
        arrays |= {f"history/{name}": value for name, value in vars(self.history).items()}
        leaves: list[Array] = []
        form = flatten(self.x, leaves)
        arrays |= {f"x/{i}": to_host(leaf) for i, leaf in enumerate(leaves)}
        arrays |= {name: np.asarray(getattr(self, name)) for name in ("success", "nit", "nfev", "draws")}
        if self.residual is not None:
            arrays["residual"] = np.asarray(self.residual)
        header = {
            "format": _FORMAT,
            "status": [status.name for status in np.atleast_1d(self.status).ravel()],
            "shape": list(self.shape),
            "blocks": len(leaves),
            "form": form,
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
    """The fields of a saved result; raises (any exception) if one is missing or contradicts another."""
    shape = tuple(check.count(n, "shape") for n in header["shape"])
    statuses = [Status[name] for name in header["status"]]
    if len(shape) > 2 or len(statuses) != prod(shape):
        raise ValueError(f"{len(statuses)} statuses for shape {shape}")
    fields: dict[str, Any] = {name: header[name] for name in ("residual_kind", "problem", "method")}
    fields["status"] = np.array(statuses, dtype=object).reshape(shape)[()]
    fields["residual"] = None
    for name in ("success", "nit", "nfev", "draws", *(["residual"] if "residual" in arrays else [])):
        value = check.array(arrays[name], name, _KINDS.get(name, "iu"), shape, least=0)
        fields[name] = value if shape else value.item()
    if header["residual_kind"] not in ((None,) if fields["residual"] is None else ("true", "estimated")):
        raise ValueError(f"a residual of kind {header['residual_kind']!r}")
    fields["x"] = _point(header, arrays, shape)
    fields["state"] = below("state/", arrays)
    fields["history"] = History.from_arrays(below("history/", arrays), len(statuses))
    _check_names(header["problem"], header["method"], shape[0] if len(shape) == 2 else 1)
    for name in ("plan", "calibration"):
        if not isinstance(header[name], (dict, type(None))):
            raise ValueError(f"a {name} that is {header[name]!r:.60}")
        fields[name] = header[name]
    certificate = None if header["certificate"] is None else Certificate.from_dict(header["certificate"])
    if certificate is not None and np.shape(certificate.upper) != shape:
        raise ValueError(f"a certificate of shape {np.shape(certificate.upper)} for shape {shape}")
    claim = None if header.get("claim") is None else Claim.from_dict(header["claim"])
    findings = tuple(map(Finding.from_dict, header.get("findings", ())))
    for record in (*findings, claim, certificate):
        str(record)  # raises if a value of its sentence is missing
    seed = check.count(header["seed"], "seed", 0, most=inf)
    return {**fields, "certificate": certificate, "claim": claim, "findings": findings, "seed": seed}


def _point(header: dict[str, Any], arrays: dict[str, Array], shape: tuple[int, ...]) -> Any:
    """The solution x: an array, or nested tuples, lists and dicts of arrays."""
    form = header.get("form", 0 if header["blocks"] is None else {"tuple": [0, 1]})  # version 0.1 wrote none
    blocks = [arrays[f"x/{i}"] for i in range(check.count(header["blocks"] or 1, "blocks", most=len(arrays)))]
    leaves = [check.array(block, "x", "f", (*shape, *block.shape[len(shape) :]))[()] for block in blocks]
    return unflatten(form, leaves)


def _check_names(problem: dict[str, Any], method: dict[str, Any], count: int) -> None:
    """Raise unless problem and method have names, and the method `count` configurations of the same parameters."""
    configurations = method["parameters"] if isinstance(method["parameters"], list) else [method["parameters"]]
    names = (problem["name"], method["id"], method["citation"])
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a problem or a method without a name")
    if any(parameters.keys() != configurations[0].keys() for parameters in configurations):
        raise ValueError("configurations whose parameters have different names")
    if len(configurations) != count:
        raise ValueError(f"{len(configurations)} configurations instead of {count}")
