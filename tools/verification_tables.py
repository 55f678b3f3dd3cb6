"""Writes what `dualanchor verify` finds into docs/verification.md, between the markers, and draws its picture.

One line for each statement: the operator on which it comes nearest to its bound. Takes about half a minute.

    python tools/verification_tables.py
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from dualanchor.cli.verify import number
from dualanchor.paper.verify import Check, verify
from dualanchor.paper.verify.complexity import CostCurve, Fit, draw_complexity, measure

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "verification.md"
PICTURE = DOCS / "figures" / "complexity.png"


def statements(checks: list[Check], source: str) -> str:
    lines = ["| id | kind | checked on | nearest | measured | bound | ratio |", "|---|---|--:|---|--:|--:|--:|"]
    for name, group in groupby((check for check in checks if check.source == source), key=lambda check: check.id):
        rows = list(group)
        near = max(rows, key=lambda check: -1.0 if check.ratio != check.ratio else check.ratio)
        ratio = f"{near.ratio:.3f}" if near.bound else "-"
        numbers = f"{number(near.measured)} | {number(near.bound)} | {ratio}"
        lines.append(f"| {name} | {near.kind} | {len(rows)} | {near.operator.replace('|', '&#124;')} | {numbers} |")
    return "\n".join(lines)


def exponents(curves: list[CostCurve]) -> str:
    def interval(fit: Fit) -> str:
        return f"{fit.exponent:.2f} ({fit.low:.2f} to {fit.high:.2f})"

    lines = [
        "| operator | method | by | claimed | planned | measured | without logarithms |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for curve in curves:
        fits = f"{curve.planned.exponent:.2f} | {interval(curve.measured)} | {interval(curve.without_logarithms)}"
        lines.append(f"| {curve.operator} | {curve.method} | {curve.source} | {curve.claim:g} | {fits} |")
    return "\n".join(lines)


def main() -> None:
    checks, curves = verify(), measure()
    tables = {
        "paper": statements(checks, "paper"),
        "ours": statements(checks, "not in the paper"),
        "exponents": exponents(curves),
    }
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        before, marker, rest = page.partition(f"<!-- {name} -->")
        page = f"{before}{marker}\n\n{table}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    PAGE.write_text(page, encoding="utf-8")
    PICTURE.write_bytes(draw_complexity(curves)["png"])


if __name__ == "__main__":
    main()
