"""Figures on the page: the place for an interactive one, its legend of buttons, and the same as a picture."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from dualanchor.report import formats
from dualanchor.report.looks import BLACK, Look
from dualanchor.report.markup import Markup, element, empty_element, joined
from dualanchor.report.views import View

_GLYPHS = {
    "o": "●",
    "s": "■",
    "D": "◆",
    "^": "▲",
    "v": "▼",
    "<": "◀",
    ">": "▶",
    "P": "✚",
    "X": "✖",
    "p": "⬟",
    "h": "⬢",
    "H": "⬣",
    "8": "◉",
    "d": "♦",
    "*": "★",
}
_TEXT_STYLE = "\ufe0e"  # asks for a plain glyph where a coloured one exists
_HOW = "Mean over seeds and band from the 5th to the 95th percentile. "
_SWITCH = "A click on a name hides or shows it, a double click shows it alone."


def chart(view: View, name: str, picture: bytes | None) -> Markup:
    """A panel's interactive figure with its legend; the picture takes its place on paper and without scripts.

    Parameters
    ----------
    view : View
        What it shows.
    name : str
        Which of the page's figures it is.
    picture : bytes, optional
        The same as SVG, which is also the file `name.svg`.
    """
    if not view.bands:
        return element("p", "No curves were recorded.", class_="note")
    place = element(
        "div", id=f"figure-{name}", class_="plot", data_figure=name, role="group", aria_label=_in_words(view)
    )
    legend = element("div", *_legend(view), class_="legend live", role="group", aria_label="Methods shown")
    caption = [_HOW, element("span", _SWITCH, class_="live")]
    if picture is None:
        return element("figure", legend, place)
    links = joined((element("a", kind.upper(), href=f"{name}.{kind}") for kind in ("png", "svg")), ", ")
    caption += [" As a file: ", links, "."]
    return element("figure", legend, place, image(picture, [view]), element("figcaption", *caption))


def image(picture: bytes, panels: Sequence[View]) -> Markup:
    """A picture inside of the page, shown on paper and without scripts."""
    source = "data:image/svg+xml;base64," + base64.b64encode(picture).decode()
    return empty_element("img", class_="static", src=source, alt=" ".join(_in_words(view) for view in panels))


def key(look: Look) -> Markup:
    """A method's line and marker, as in the figures."""
    colour = "currentColor" if look.colour == BLACK else look.colour
    dashes = " ".join(f"{look.width * length:.1f}" for length in look.dash) or None
    line = element("line", x1=0, y1=6, x2=32, y2=6, stroke=colour, stroke_width=look.width, stroke_dasharray=dashes)
    glyph = element("text", _GLYPHS[look.marker] + _TEXT_STYLE, x=16, y=9.5, text_anchor="middle", fill=colour)
    return element("svg", line, glyph, class_="key", viewBox="0 0 32 12", aria_hidden="true")


def _legend(view: View) -> list[Markup]:
    return [
        element("button", key(view.looks[name]), view.label(name), type="button", aria_pressed="true", data_method=name)
        for name in view.bands
    ]


def _in_words(view: View) -> str:
    text = f"{view.title}: residual against operator evaluations, {len(view.bands)} methods."
    best = view.best()
    if best is not None:
        rows = view.panel["methods"].items()
        winners = [view.looks[name].label for name, row in rows if row["final"]["mean"] == best]
        text += f" Smallest at the end: {' and '.join(winners)}, {formats.residual(best)}."
    return text
