"""How each method is shown: its name, colour, dash and marker; curves can be distinguished in grey, too."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; yellow is too pale for lines.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#808080"


class Marker(NamedTuple):
    """A marker as plotly.js calls it, and as a character."""

    symbol: str
    glyph: str


MARKERS = {  # by matplotlib's code
    "o": Marker("circle", "●"),
    "s": Marker("square", "■"),
    "D": Marker("diamond", "◆"),
    "^": Marker("triangle-up", "▲"),
    "v": Marker("triangle-down", "▼"),
    "<": Marker("triangle-left", "◀"),
    ">": Marker("triangle-right", "▶"),
    "P": Marker("cross", "✚"),
    "X": Marker("x", "✖"),
    "p": Marker("pentagon", "⬟"),
    "h": Marker("hexagon", "⬢"),
    "H": Marker("hexagon2", "⬣"),
    "8": Marker("octagon", "◉"),
    "d": Marker("diamond-tall", "♦"),
    "*": Marker("star", "★"),
}


@dataclass(frozen=True)
class Style:
    """How a method is drawn and called."""

    name: str  # in legends and tables
    colour: str  # hexadecimal
    dash: tuple[float, ...] = ()  # lengths of dash and gap in line widths; empty for a solid line
    marker: str = "o"  # a key of MARKERS
    emphasised: bool = False  # drawn on top and thicker
    ours: bool = False  # this library's own, not in the paper

    @property
    def label(self) -> str:
        """The name, with an asterisk if the method is ours."""
        return self.name + "*" * self.ours

    @property
    def width(self) -> float:
        return 2.8 if self.emphasised else 1.5


STYLES = {
    "s-dual-ohm": Style("S-Dual-OHM", VERMILLION, emphasised=True),
    "s-ohm": Style("S-OHM", BLUE, (5.0, 1.5), "s"),
    "s-ohm-tuned": Style("S-OHM (tuned B)", SKY, (5.0, 1.5, 1.0, 1.5), "D"),
    "sgda": Style("SGDA", GREEN, (), "^"),
    "seg": Style("SEG", ORANGE, (2.5, 1.2), "v"),
    "rain": Style("RAIN", PURPLE, (), "P"),
    "halpern-page": Style("Halpern-PAGE", BLACK, (1.0, 1.3), "X"),
    "halpern-vr-finite": Style("Halpern-VR-Finite", GREY, (8.0, 2.0), "p"),
    "averaged": Style("averaged", "#8C6D1F", (1.5, 3.0), "8", ours=True),
    "dual-ohm": Style("Dual-OHM, tapered", "#B83B7E", (7.0, 1.2, 1.0, 1.2), "H", ours=True),
    "auto": Style("auto", "#5C5CD6", (4.0, 1.0, 1.0, 1.0), "d", ours=True),
}

_SPARE_COLOURS = (BLUE, GREEN, PURPLE, BLACK, ORANGE, SKY, GREY)
_SPARE_DASHES = ((3.5, 1.2, 1.0, 1.2, 1.0, 1.2), (10.0, 1.5), (1.0, 2.2), (6.0, 1.2, 2.0, 1.2))
_SPARE_MARKERS = ("<", ">", "h", "d", "*")


def assign_styles(methods: Iterable[str]) -> dict[str, Style]:
    """A style for each method id; one without a style of its own is shown under its id, with a spare one."""
    spare = zip(cycle(_SPARE_COLOURS), cycle(_SPARE_DASHES), cycle(_SPARE_MARKERS), strict=False)
    return {name: STYLES.get(name) or Style(name, *next(spare)) for name in dict.fromkeys(methods)}
