"""Findings: what was noticed about a run, as data; their sentences are in `sentences`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple, Self

from dualanchor.core import sentences
from dualanchor.core.errors import unknown_name
from dualanchor.core.files import jsonable


class Severity(Enum):
    """How serious a finding is: a note, a reason for caution, or a violation of what theorems assume.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.Finding.of("not-monotone", count=3, pairs=16, slope=-2.1).severity
    <Severity.VIOLATION: 'violation'>
    """

    NOTE = "note"
    WARNING = "warning"
    VIOLATION = "violation"


NOTE, WARNING, VIOLATION = Severity


class Code(NamedTuple):
    """Default severity, sentence (a template or a function of the values) and printed label of a code."""

    severity: Severity
    text: sentences.Text
    label: str | None = None


@dataclass(frozen=True)
class Finding:
    """Something noticed before, during or after a run.

    Attributes
    ----------
    code : str, a word of `CODES`; the page "Findings" of the documentation has a section for each
    severity : Severity, by default that of the code
    values : dict, the numbers behind it, as plain JSON values; a non-finite number is None

    Examples
    --------
    >>> import dualanchor as da
    >>> print(da.Finding.of("more-samples", factor=4.0).code)
    more-samples
    """

    code: str
    severity: Severity = None  # type: ignore[assignment]  # set by __post_init__
    values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise unknown_name("Finding: code", self.code, CODES)
        severity = CODES[self.code].severity if self.severity is None else Severity(self.severity)
        object.__setattr__(self, "severity", severity)
        object.__setattr__(self, "values", jsonable(self.values))

    @classmethod
    def of(cls, code: str, **values: Any) -> Self:
        """A finding with the severity of its code."""
        return cls(code, values=values)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The finding that `to_dict` wrote."""
        return cls(facts["code"], Severity(facts["severity"]), dict(facts["values"]))

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON values."""
        return {"code": self.code, "severity": self.severity.value, "values": self.values}

    def row(self, number: int) -> Self:
        """The finding about one row of a result, with the row's number in place of a list of one for each."""
        values = {name: value[number] if _is_per_row(value) else value for name, value in self.values.items()}
        return replace(self, values=values)

    @property
    def label(self) -> str:
        """The label before the sentence in a printed result."""
        return CODES[self.code].label or ("note" if self.severity is NOTE else "warning")

    @property
    def text(self) -> str:
        """The sentence, without the code."""
        return sentences.sentence(CODES[self.code].text, self.values)

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]"


def _is_per_row(value: Any) -> bool:
    """Whether a value is a list of numbers, one for each row of a result; other lists are of names."""
    return isinstance(value, list) and not any(isinstance(item, str) for item in value)


def violations(findings: Iterable[Finding]) -> list[Finding]:
    """The findings with which no theorem may be claimed."""
    return [finding for finding in findings if finding.severity is VIOLATION]


SAMPLES, ROUTE = "samples", "route"  # labels of findings about where samples were spent and why a method was chosen
_TABLES: tuple[tuple[Severity, str | None, sentences.Texts], ...] = (
    (NOTE, ROUTE, sentences.ROUTES),
    (NOTE, SAMPLES, sentences.SAMPLES),
    (VIOLATION, None, sentences.VIOLATIONS),
    (WARNING, None, sentences.WARNINGS),
    (NOTE, "gap", sentences.GAP),
    (NOTE, None, sentences.RUN_NOTES),
    (WARNING, None, sentences.CERTIFICATE_WARNINGS),
    (NOTE, None, sentences.OTHER_NOTES),
)
CODES = {code: Code(kind, text, label) for kind, label, texts in _TABLES for code, text in texts.items()}
"""Every code: its default severity and its sentence."""
