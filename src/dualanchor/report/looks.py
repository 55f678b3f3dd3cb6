"""How each method is shown: its name, and a colour, a dash and a marker that also tell curves apart in grey."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; yellow is too pale for lines.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GREY = "#808080"


@dataclass(frozen=True)
class Look:
    """How a method is drawn and called.

    Attributes
    ----------
    label : str
        Its name in legends and tables.
    colour : str
        Hexadecimal.
    dash : tuple of float
        Lengths of dash and gap in line widths; empty for a solid line.
    marker : str
        A marker in matplotlib's code.
    emphasised : bool
        Whether it is drawn on top and thicker.
    """

    label: str
    colour: str
    dash: tuple[float, ...] = ()
    marker: str = "o"
    emphasised: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is one of this library's own methods, which have an asterisk."""
        return self.label.endswith("*")

    @property
    def width(self) -> float:
        """Line width in points."""
        return 2.8 if self.emphasised else 1.5


KNOWN = {
    "s-dual-ohm": Look("S-Dual-OHM", VERMILLION, emphasised=True),
    "s-ohm": Look("S-OHM", BLUE, (5.0, 1.5), "s"),
    "s-ohm-tuned": Look("S-OHM (tuned B)", SKY, (5.0, 1.5, 1.0, 1.5), "D"),
    "sgda": Look("SGDA", GREEN, (), "^"),
    "seg": Look("SEG", ORANGE, (2.5, 1.2), "v"),
    "rain": Look("RAIN", PURPLE, (), "P"),
    "halpern-page": Look("Halpern-PAGE", BLACK, (1.0, 1.3), "X"),
    "halpern-vr-finite": Look("Halpern-VR-Finite", GREY, (8.0, 2.0), "p"),
    # This library's own; the asterisk is explained where they are shown.
    "averaged": Look("averaged*", "#8C6D1F", (1.5, 3.0), "8"),
    "dual-ohm": Look("Dual-OHM, tapered*", "#A3306B", (7.0, 1.2, 1.0, 1.2), "H"),
    "auto": Look("auto*", "#3B3B98", (4.0, 1.0, 1.0, 1.0), "d"),
}

_SPARE_COLOURS = (BLUE, GREEN, PURPLE, BLACK, ORANGE, SKY, GREY)
_SPARE_DASHES = ((3.5, 1.2, 1.0, 1.2, 1.0, 1.2), (10.0, 1.5), (1.0, 2.2), (6.0, 1.2, 2.0, 1.2))
_SPARE_MARKERS = ("<", ">", "h", "d", "*")


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """A look for each method id; one that is not known is shown under its id, with what is left over."""
    found: dict[str, Look] = {}
    others = 0
    for name in methods:
        if name in found:
            continue
        if name in KNOWN:
            found[name] = KNOWN[name]
        else:
            found[name] = Look(
                name,
                _SPARE_COLOURS[others % len(_SPARE_COLOURS)],
                _SPARE_DASHES[others % len(_SPARE_DASHES)],
                _SPARE_MARKERS[others % len(_SPARE_MARKERS)],
            )
            others += 1
    return found
