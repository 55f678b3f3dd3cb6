"""The printed form of results, certificates, plans and tables: labelled lines, as text or as an HTML table."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dualanchor.core.finding import CODES, ROUTE, SAMPLES, Severity
from dualanchor.core.nested import of_players

if TYPE_CHECKING:
    from dualanchor.core.result import Result

MOST_LINES = 24  # of a printed result, unless there are more warnings
Lines = list[tuple[str, str]]
"""Labels and texts."""


def text_lines(lines: Lines, min_width: int = 0) -> str:
    """One line of text for each label, with the labels right-aligned."""
    width = max(min_width, *(len(label) for label, _ in lines))
    return "\n".join(f"{label:>{width}}: {text}" for label, text in lines)


def html_table(rows: Iterable[Sequence[str]], header: Sequence[str] = (), caption: str = "") -> str:
    """Rows of cells as an HTML table, with the first cell of each row as its label; everything is escaped."""
    cell = '<{0} style="text-align: {1}">{2}</{0}>'
    head = "".join(cell.format("th", "left", escape(name)) for name in header)
    lines = [f"<tr>{head}</tr>"] if header else []
    for label, *texts in rows:
        cells = "".join(cell.format("td", "left", escape(text)) for text in texts)
        lines.append(f"<tr>{cell.format('th', 'left' if header else 'right', escape(label))}{cells}</tr>")
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{''.join(lines)}</table>"


def lines_of(result: "Result") -> Lines:
    """The labelled lines of a result: at most `MOST_LINES`, unless there are more warnings."""
    lines = [*_head(result), *_points(result)]
    findings = [finding for finding in result.findings if finding.label not in (ROUTE, SAMPLES)]
    notes = [finding for finding in findings if finding.severity is Severity.NOTE]
    lines += [(finding.label, str(finding)) for finding in findings if finding.severity is not Severity.NOTE]
    room = max(0, MOST_LINES - len(lines))
    shown = len(notes) if len(notes) <= room else max(0, room - 1)
    lines += [(note.label, str(note)) for note in notes[:shown]]
    if hidden := notes[shown:]:
        lines.append(("note", f"{len(hidden)} more in findings: {', '.join(note.code for note in hidden)}"))
    return lines


def _head(result: "Result") -> Iterator[tuple[str, str]]:
    routes = [finding for finding in result.findings if finding.label == ROUTE]
    yield "method", f"{result.method['id']} on {result.problem['name']}"
    yield from ((ROUTE, str(route)) for route in routes)
    yield "status", result.message
    yield "success", span(result.success, "d") if result.shape else str(bool(result.success))
    yield "rounds", span(result.nit, ",")
    yield "samples", span(result.draws, ",") + _purposes(result)
    if not np.array_equal(result.nfev, result.draws):
        yield "evaluations", f"{span(result.nfev, ',')} (some samples more than once)"
    yield "residual", _residual(result)
    if result.claim is not None:
        yield "claim", str(result.claim)
    if result.certificate is not None:
        yield "certificate", result.certificate.text


def _purposes(result: "Result") -> str:
    """How many samples were spent on what, in parentheses; the run itself comes before the certificate."""
    order = list(CODES)
    spent = sorted(
        (finding for finding in result.findings if finding.label == SAMPLES), key=lambda f: order.index(f.code)
    )
    if not spent:
        return ""
    texts = [finding.text for finding in spent]
    run = result.draws - sum(np.asarray(finding.values["samples"]) for finding in spent)
    text = " to ".join(f"{count:,}" for count in sorted({np.min(run), np.max(run)})) + " run"
    texts.insert(len(texts) - (spent[-1].code == "certificate-samples"), text)
    return f" ({', '.join(texts)})"


def _residual(result: "Result") -> str:
    if result.residual is None:
        return "not known: the operator can only be sampled"
    if result.residual_kind == "estimated" and np.all(np.asarray(result.residual) == 0):
        return "not visible above the noise (estimated)"
    return f"{span(result.residual, '.4g')} ({result.residual_kind})"


def _points(result: "Result") -> Iterator[tuple[str, str]]:
    for name, block in (of_players(result.x, result.problem["name"]) or {"x": result.x}).items():
        yield name, _point(block, whole=not result.shape)
    if len(result.shape) == 2 and result.residual is not None and result.shape[0] <= MOST_LINES - 12:
        for label, residual in zip(result.labels(), result.residual.mean(axis=1), strict=True):
            yield label, f"mean residual {residual:.4g}"


def _point(x: Any, whole: bool) -> str:
    """An array, or nested ones, in one line: small ones as they are (if `whole`), others by their shapes."""
    if isinstance(x, dict):
        return "{" + ", ".join(f"{key!r}: {_point(value, whole)}" for key, value in x.items()) + "}"
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(_point(value, whole) for value in x) + "]"
    if not whole or (np.ndim(x) > 1 and prod(x.shape) > 12):
        return f"array of shape {tuple(x.shape)}"
    with np.printoptions(precision=4, threshold=12, edgeitems=2):
        return " ".join(str(x).split("\n"))


def span(values: Any, form: str) -> str:
    """A number in this format, or the range and the median of several; for booleans, how many are True."""
    if np.ndim(values) == 0:
        return format(values, form)
    if np.asarray(values).dtype == bool:
        return f"{np.count_nonzero(values)} of {np.size(values)}"
    low, high = (format(end, form) for end in (np.min(values), np.max(values)))
    median = format(np.median(values), ",.0f" if form == "," else ".4g")
    return low if low == high else f"{low} to {high}, median {median}"
