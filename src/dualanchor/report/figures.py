"""Figures; the only place that imports matplotlib."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualanchor.core.errors import ArgumentError, optional_module
from dualanchor.core.history import History
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.report.panel_data import PanelData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dualanchor.advise.calibration import Calibration
    from dualanchor.advise.planned import Plan

_STYLE = Path(__file__).with_name("templates") / "figures.mplstyle"
_SIZES = {1: (7.4, 4.6), 2: (5.0, 3.5)}  # inches per panel, by the number of columns
_LEGEND_LINE, _LEGEND_LETTER = 0.84, 0.0725  # inches of the line beside a label, and of a letter of it
_LEGEND_COLUMNS = 4  # at most
_MARKERS = 9  # per curve, about


@contextmanager
def figure_style(purpose: str, extra: str) -> Iterator[type[Figure]]:
    """Matplotlib's Figure, within this library's settings instead of the user's; pyplot is not touched."""
    matplotlib = optional_module("matplotlib", extra, purpose)
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rc_file(_STYLE)
        yield Figure


def draw(panels: Sequence[PanelData], columns: int = 1) -> dict[str, bytes]:
    """Draw panels in one or two columns, with one legend below; returns the picture as PNG and SVG."""
    rows = -(-len(panels) // columns)
    width, height = _SIZES[columns]
    with figure_style("A report", "report") as Figure:
        figure = Figure(figsize=(columns * width, rows * height))
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        lines: dict[str, Any] = {}
        for ax, panel in zip(axes, panels, strict=False):
            lines |= _draw_panel(ax, panel)
        for ax in axes[len(panels) :]:
            ax.remove()
        if labels := list(dict.fromkeys(panel.label(name) for panel in panels for name in panel.bands)):
            shown, across = _legend(labels, columns * width)
            figure.legend([lines[label] for label in labels], shown, loc="outside lower center", ncols=across)
        return render(figure)


def _legend(labels: Sequence[str], width: float) -> tuple[list[str], int]:
    """The labels, shortened if too long for the width (inches), and how many of them fit side by side."""
    max_letters = int((width - _LEGEND_LINE) / _LEGEND_LETTER)
    shown = [label if len(label) <= max_letters else f"{label[: max_letters - 1]}…" for label in labels]
    across = int(width / (_LEGEND_LINE + _LEGEND_LETTER * max(map(len, shown))))
    shown = [f" {label}" if label.startswith("_") else label for label in shown]  # which matplotlib would leave out
    return shown, min(_LEGEND_COLUMNS, len(shown), max(1, across))


def _draw_panel(ax: Any, panel: PanelData) -> dict[str, Any]:
    from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

    lines = {}
    low, high = panel.limits()
    for rank, name in enumerate(panel.order()):
        band, style = panel.bands[name], panel.styles[name]
        step = max(1, len(band.evals) // _MARKERS)
        drawn = {"color": style.colour, "marker": style.marker, "markersize": 6.5 if style.emphasised else 5.5}
        drawn |= {"markeredgecolor": "white", "markeredgewidth": 0.3, "zorder": 3 + rank}
        ax.fill_between(band.evals, band.low, band.high, color=style.colour, alpha=0.16, linewidth=0, zorder=2)
        line: dict[str, Any] = {"linewidth": style.width, "linestyle": (0, style.dash) if style.dash else "-"}
        line["markevery"] = (rank * step // len(panel.bands), step)  # markers of different curves are shifted
        (lines[panel.label(name)],) = ax.plot(band.evals, band.mean, **line, **drawn)
        if low <= band.mean[-1] <= high:
            ax.plot(band.evals[-1], band.mean[-1], clip_on=False, **drawn)
    ax.set(yscale="log", ylim=(low, high), xlim=(0, panel.end()), title=panel.title)
    ax.set(xlabel="operator evaluations", ylabel="residual ‖F(x)‖")
    decades = np.log10(high / low)
    between = (2.0, 3.0, 5.0) if decades < 1 else (2.0, 5.0) if decades < 2.5 else ()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, *between)) if decades > 0.35 else MaxNLocator(5))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter("")
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if panel.end() < 5e6 else "{x:g}"))
    return lines


def render(figure: Figure) -> dict[str, bytes]:
    """The figure as PNG and as SVG."""
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", pil_kwargs={"compress_level": 3})  # quicker, for 6 % more bytes
    figure.savefig(svg, format="svg", metadata={"Date": None})
    return {"png": png.getvalue(), "svg": svg.getvalue()}


def plot_result(result: Result, ax: Any = None) -> Any:
    """Plot residuals against operator evaluations, one curve per configuration, with stages and the certificate.

    A curve of true residuals is the mean over replications, with a band from the 5th to the 95th percentile. Estimates
    from the run's own samples have a band of two standard errors. `ax` are matplotlib axes; by default a new figure
    is made.
    """
    history = result.history
    if not history.residual.size and result.certificate is None:
        rule = "Result.plot shows recorded residuals, or a certificate"
        remedy = "Solve a problem whose operator is known, or with record='samples', or use a front door such as root"
        raise ArgumentError(rule, "a result without any", remedy)
    ax = _axes(ax, "Result.plot")
    replications = result.shape[-1] if result.shape else 1
    configuration = history.row // replications
    estimated = bool(history.residual.size) and result.residual_kind != "true"  # then rows have different steps
    for row in np.unique(history.row) if estimated else ():
        _add_estimates(ax, result, row)
    for number in np.unique(configuration) if history.residual.size and not estimated else ():
        chosen = configuration == number
        evals, mean, low, high = _over_rows(history.evals[chosen], history.k[chosen], history.residual[chosen])
        (line,) = ax.plot(evals, mean, label=result.labels()[number])
        if replications > 1:
            ax.fill_between(evals, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if result.certificate is not None:
        _add_certificate(ax, result)
    ax.set_yscale("log", nonpositive="mask")
    ax.set(xlabel="operator evaluations", ylabel="residual ‖F(x)‖")
    ax.set_title(result.problem["name"], parse_math=False)  # a user's name: a dollar in it is no formula
    ax.locator_params(axis="x", nbins=6)
    ax.legend()
    ax.grid(True, which="major", alpha=0.3)
    return ax


def _axes(ax: Any, purpose: str) -> Any:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    pyplot = optional_module("matplotlib.pyplot", "plot", purpose)
    return pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")[1]


def _add_estimates(ax: Any, result: Result, row: int) -> None:
    """Draw the estimates of one row; with a band and the ends of stages if they are from the run's own samples."""
    own, sigma = result.history.of(row), _noise(result)
    if not own.samples.size or sigma is None:
        ax.plot(own.evals, own.residual, "C0.-", linewidth=1, label="" if row else "estimates on fresh samples")
        return
    label = "estimates during the run" if len(own) > 2 else "estimates on fresh samples"
    certificate = result.certificate
    known = np.inf if certificate is None or certificate.is_exact else float(np.min(certificate.samples))
    evals, square, error, seen = _pooled(own, sigma, known)
    ax.plot(evals, np.where(seen, np.sqrt(square), np.nan), "C0.-", linewidth=1, label="" if row else label)
    low, high = np.sqrt(np.maximum(square - 2 * error, 0.0)), np.sqrt(square + 2 * error)
    low = np.where(seen, low, 0.3 * np.min(high, initial=np.inf))  # a logarithmic axis has no 0
    ax.fill_between(evals, low, high, color="C0", alpha=0.25, linewidth=0, label="" if row else "two standard errors")
    ends = own.evals[np.flatnonzero(np.diff(own.stage))] if row == 0 else np.zeros(0)
    if ends.size:
        ticks = {"marker": "|", "color": "grey", "linestyle": "", "transform": ax.get_xaxis_transform()}
        ax.plot(ends, np.full(ends.size, 0.02), label="a stage ends", **ticks)


def _pooled(own: History, sigma: float, known: float) -> tuple[Array, Array, Array, Array]:
    """Evaluations, squared residuals, their standard errors, and whether a square is clearly larger than its error.

    Neighbouring estimates are pooled until that is so, over at most a twelfth of the run. `known` is the number of
    samples from which sigma^2, which was subtracted, is known.
    """
    usable = (own.samples > 0) & np.isfinite(own.residual)
    evals, squares, variance = own.evals[usable], own.residual[usable] ** 2, sigma**2 / own.samples[usable]
    # An upper bound of the error of one square, for normal noise; then that of sigma^2 is added.
    error = (np.sqrt(2) * variance + 2 * np.sqrt(squares * variance)) / np.sqrt(own.rounds[usable])
    error = np.hypot(error, variance * np.sqrt(2 / known))
    precision, pools, begin = (own.rounds * own.samples**2)[usable], [], 0
    for end in range(1, evals.size + 1):
        weight = precision[begin:end] / precision[begin:end].sum()
        square, spread = weight @ squares[begin:end], np.linalg.norm(weight * error[begin:end])
        clipped = 0.4 * weight @ error[begin:end] if end - begin > 1 else 0.0  # the bias of estimates cut off at 0
        seen = square > 2 * spread + clipped
        if seen or end == evals.size or evals[end] - evals[begin] > evals[-1] / 12:
            pools.append((weight @ evals[begin:end], square, spread, seen))
            begin = end
    columns = np.array(pools, dtype=float).reshape(-1, 4).T
    return columns[0], columns[1], columns[2], columns[3] > 0


def _noise(result: Result) -> float | None:
    """The largest sigma in the certificate and the calibration; None if there is none."""
    calibration = result.calibration
    sigmas = [] if result.certificate is None else [float(np.max(result.certificate.sigma))]
    if calibration is not None:
        sigmas.append(calibration["sigma"] if isinstance(calibration, dict) else calibration.sigma)
    return max((sigma for sigma in sigmas if sigma is not None and np.isfinite(sigma)), default=None)


def _add_certificate(ax: Any, result: Result) -> None:
    certificate = result.certificate
    assert certificate is not None
    residual, upper = np.atleast_1d(certificate.residual), np.atleast_1d(certificate.upper)
    evals = np.broadcast_to(np.atleast_1d(result.nfev), upper.shape)
    ink = ax.xaxis.label.get_color()  # readable on this background
    point = {"color": ink, "linestyle": "", "zorder": 4}
    if certificate.is_exact:
        ax.plot(evals, residual, marker="v", label="exact residual", **point)
        return
    level = f"{100 * certificate.confidence:g} %"
    ax.plot(evals, upper, marker="v", label=f"upper bound, confidence {level}", **point)
    seen = residual > 0  # a logarithmic axis has no 0
    if seen.any():
        ax.plot(evals[seen], residual[seen], "o", mfc="none", label="estimate on fresh samples", **point)
    ax.vlines(evals[seen], residual[seen], upper[seen], color=ink, linewidth=1)


def plot_plan(plan: Plan, ax: Any = None) -> Any:
    """Plot batch sizes against rounds and, on an axis on the right, the bound at the end of each stage."""
    ax = _axes(ax, "Plan.plot")
    ends = np.cumsum([run.horizon - 1 for run in plan.stages])
    for number, (rounds, sizes) in enumerate(plan.sizes() if plan.rounds else ()):
        ax.plot(rounds, sizes, "C0", drawstyle="steps-post", label="" if number else "samples of a round")
        if number:
            ax.axvline(ends[number - 1], color="grey", linestyle=":", linewidth=1)
    bounds = ax.twinx()
    bounds.plot(ends, [run.bound for run in plan.stages], "C1v", label="bound at the end of a stage")
    if plan.eps:
        bounds.axhline(plan.eps, color="C1", linestyle="--", linewidth=1, label=f"eps = {plan.eps:g}")
    top = max(run.bound for run in plan.stages)
    bounds.set(yscale="log", ylim=(plan.bound / 3, 3 * top), ylabel="root mean square residual, at most")
    title = f"{plan.theorem.title}: {plan.samples:,} samples, bound {plan.bound:.3g}"
    ax.set(yscale="log", xlabel="round", ylabel="samples of a round", title=title)
    handles = [part.get_legend_handles_labels() for part in (ax, bounds)]
    ax.legend(handles[0][0] + handles[1][0], handles[0][1] + handles[1][1])
    ax.grid(True, which="major", alpha=0.3)
    return ax


def plot_calibration(seen: Calibration, ax: Any = None) -> Any:
    """Plot noise, residual and local constants with their intervals, one below the other on a logarithmic axis."""
    ax = _axes(ax, "Calibration.plot")
    rows: list[tuple[str, Any, Any]] = [
        ("sigma at x0", seen.sigma, seen.sigma_interval),
        *((f"sigma at distance {distance:.3g}", sigma, None) for distance, sigma in seen.sigma_at),
        ("‖F(x0)‖", seen.residual, seen.residual_interval),
        ("L, local", seen.local_L, seen.local_L_interval),
        ("L of the mean, local", seen.local_L_mean, seen.local_L_mean_interval),
        ("M, local", seen.local_M, None),
        ("D, a guess", seen.D_guess, None),
    ]
    known = [row for row in rows if row[1] is not None and np.isfinite(row[1])]
    least = min((value for _, value, _ in known if value > 0), default=1.0)
    for place, (_, value, interval) in enumerate(known):
        low, high = (value, value) if interval is None else interval
        beyond = high if np.isfinite(high) else 1e3 * max(value, least)
        ax.hlines(place, max(low, 1e-2 * least), beyond, color="C0", linewidth=2, alpha=0.5)
        ax.plot(value, place, "C0o")
    ax.set_yticks(range(len(known)), [name for name, _, _ in known])
    ax.set(xscale="log", title=f"calibration with {seen.evals:,} evaluations")
    ax.invert_yaxis()
    ax.grid(True, axis="x", which="major", alpha=0.3)
    return ax


def _over_rows(evals: Array, k: Array, residual: Array) -> Array:
    """Mean evaluations, mean residual and its percentiles over the rows that were recorded at each step, (4, steps)."""
    groups = [(evals[k == step], residual[k == step]) for step in np.unique(k)]
    with np.errstate(invalid="ignore"):  # infinite residuals
        return np.array([(e.mean(), r.mean(), *np.percentile(r, [5, 95])) for e, r in groups]).T
