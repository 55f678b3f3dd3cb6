"""How figures of the gallery look: no background and grey text, to be read on light pages and on dark ones."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt

GREY = "#808080"
COLOURS = ("#2b8fd9", "#e07b00", "#16a06a", "#d6455d", "#9b6fdb", "#8a8a3a", GREY)


def for_light_and_dark(gallery_conf: dict[str, Any], script: str) -> None:
    """Set the style before a script runs; scripts themselves set none."""
    plt.rcParams.update(
        {
            "figure.facecolor": "none",
            "savefig.facecolor": "none",
            "axes.facecolor": "none",
            "legend.framealpha": 0.0,
            "axes.prop_cycle": plt.cycler(color=COLOURS),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.alpha": 0.4,
            **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY),
        }
    )
