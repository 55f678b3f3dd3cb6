"""The printed form of results and of what stands beside them: labelled lines, as text or as an HTML table."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dualanchor.core.finding import CODES, ROUTE, SAMPLES, Severity

if TYPE_CHECKING:
    from dualanchor.core.result import Result

MOST_LINES = 24
Lines = list[tuple[str, str]]


def as_text(result: "Result") -> str:
    """The lines with their labels flush right; at most `MOST_LINES`, unless there are more warnings."""
    return text_lines(lines_of(result), 10)


def text_lines(lines: Lines, least: int = 0) -> str:
    """Labels flush right in a column of at least this width, each with its text."""
    width = max(least, *(len(label) for label, _ in lines))
    return "\n".join(f"{label:>{width}}: {text}" for label, text in lines)


def html_table(rows: Iterable[Sequence[str]], header: Sequence[str] = (), caption: str = "") -> str:
    """Rows of cells as an HTML table, the first cell of each as its label; everything escaped."""
    cell = '<{0} style="text-align: {1}">{2}</{0}>'
    head = "".join(cell.format("th", "left", escape(name)) for name in header)
    lines = [f"<tr>{head}</tr>"] if header else []
    for label, *texts in rows:
        cells = "".join(cell.format("td", "left", escape(text)) for text in texts)
        lines.append(f"<tr>{cell.format('th', 'left' if header else 'right', escape(label))}{cells}</tr>")
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{''.join(lines)}</table>"


def lines_of(result: "Result") -> Lines:
    """The labelled lines of a result."""
    lines = [*_head(result), *_points(result)]
    shown = [one for one in result.findings if one.label not in (ROUTE, SAMPLES)]
    notes = [one for one in shown if one.severity is Severity.NOTE]
    lines += [(one.label, str(one)) for one in shown if one.severity is not Severity.NOTE]
    room = max(0, MOST_LINES - len(lines))
    fit = len(notes) if len(notes) <= room else max(0, room - 1)
    lines += [(one.label, str(one)) for one in notes[:fit]]
    if cut := notes[fit:]:
        lines.append(("note", f"{len(cut)} more in findings: {', '.join(one.code for one in cut)}"))
    return lines


def _head(result: "Result") -> Iterator[tuple[str, str]]:
    routes = [one for one in result.findings if one.label == ROUTE]
    yield "method", f"{result.method['id']} on {result.problem['name']}"
    yield from ((ROUTE, str(one)) for one in routes)
    yield "status", result.message
    yield "success", span(result.success, "d") if result.shape else str(bool(result.success))
    if not routes:
        yield from ((name, span(getattr(result, name), ",")) for name in ("nit", "nfev", "draws"))
    else:
        yield "rounds", span(result.nit, ",")
        yield "samples", span(result.draws, ",") + _shares(result)
        if not np.array_equal(result.nfev, result.draws):
            yield "evaluations", f"{span(result.nfev, ',')} (some samples more than once)"
    yield "residual", _residual(result)
    if result.claim is not None:
        yield "claim", str(result.claim)
    if result.certificate is not None:
        yield "certificate", result.certificate.text


def _shares(result: "Result") -> str:
    order = list(CODES)
    parts = sorted((one for one in result.findings if one.label == SAMPLES), key=lambda one: order.index(one.code))
    if not parts:
        return ""
    texts = [one.text for one in parts]
    if not result.shape:
        run = f"{result.draws - sum(one.values['samples'] for one in parts):,} run"
        texts.insert(len(texts) - (parts[-1].code == "certificate-samples"), run)
    return f" ({', '.join(texts)})"


def _residual(result: "Result") -> str:
    if result.residual is None:
        return "not known: the operator can only be sampled"
    if result.residual_kind == "estimated" and np.all(np.asarray(result.residual) == 0):
        return "not visible above the noise (estimated)"
    return f"{span(result.residual, '.4g')} ({result.residual_kind})"


def _points(result: "Result") -> Iterator[tuple[str, str]]:
    blocks = {"u": result.x[0], "v": result.x[1]} if isinstance(result.x, tuple) else {"x": result.x}
    for name, block in blocks.items():
        if result.shape or (np.ndim(block) > 1 and prod(block.shape) > 12):
            yield name, f"array of shape {tuple(block.shape)}"
        else:
            with np.printoptions(precision=4, threshold=12, edgeitems=2):
                yield name, " ".join(str(block).split("\n"))
    if len(result.shape) == 2 and result.residual is not None and result.shape[0] <= MOST_LINES - 12:
        for label, residual in zip(result.labels(), result.residual.mean(axis=1), strict=True):
            yield label, f"mean residual {residual:.4g}"


def span(values: Any, form: str) -> str:
    """A number, or the range and the median of several."""
    if np.ndim(values) == 0:
        return format(values, form)
    if np.asarray(values).dtype == bool:
        return f"{np.count_nonzero(values)} of {np.size(values)}"
    low, high = (format(end, form) for end in (np.min(values), np.max(values)))
    median = format(np.median(values), ",.0f" if form == "," else ".4g")
    return low if low == high else f"{low} to {high}, median {median}"
