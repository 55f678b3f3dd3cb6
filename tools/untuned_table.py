"""Writes the table of docs/untuned.md: the untuned default against tuned baselines, on problems of many kinds.

Parameters are selected on other seeds than those that are reported. Failures stay in the table. Residuals of baselines
may be stored in a folder, for they do not change with the default.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np

import dualanchor as da
from dualanchor.methods import registry

sys.path.insert(0, str(Path(__file__).parent))
from untuned_problems import Case, cases

PAGE = Path(__file__).parent.parent / "docs" / "untuned.md"
BASELINES = ("sgda", "seg", "s-dual-ohm", "s-ohm", "halpern-page", "rain")
LARGE = 100_000  # samples, from which on fewer seeds are run
IN_ONE_DIMENSION = 8  # times the seeds: there a single residual may be anything from 0 on
TABLE_HEAD = (
    "| problem | kind | samples | with L | without L | best tuned baseline | averaged, tuned | ratio | without L |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|",
)
FLOOR = 1e-13  # of the residual at the start: below, rounding decides


def tuned(case: Case, name: str, budget: int, seeds: int) -> float:
    """The mean final residual of a method, selected on other seeds; infinite if it diverged or cannot run."""
    problem, cls = case.problem(), registry.get(name)
    if name == "halpern-page" and not case.replayable:
        return np.inf
    grid = cls.grid(problem, budget)
    points = [{}]
    for key, values in grid.items():
        points = [{**point, key: value} for point in points for value in values]
    methods = [cls.for_problem(problem, budget, **point) for point in points]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = da.solve(problem, methods, budget=budget, reps=list(range(2 * seeds)), record=0, check=False)
    residual = np.where(result.status == da.Status.DIVERGED, np.inf, result.residual).reshape(len(points), -1)
    best = int(np.argmin(residual[:, seeds:].mean(axis=1)))
    return float(residual[best, :seeds].mean())


def baselines(case: Case, budget: int, seeds: int, folder: Path | None) -> dict[str, float]:
    """Residuals of all tuned methods, stored if there is a folder."""
    path = None if folder is None else folder / f"{case.name.replace(' ', '-').replace('/', '')}-{budget}-{seeds}.json"
    if path is not None and path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    names = BASELINES if budget < LARGE else BASELINES[:2]
    found = dict.fromkeys(BASELINES, float("inf")) | {
        name: tuned(case, name, budget, seeds) for name in (*names, "averaged")
    }
    if path is not None:
        path.write_text(json.dumps(found), encoding="utf-8")
    return found


def default(case: Case, budget: int, seeds: int, L: float | None) -> float:
    """The mean final residual of the front door with nothing but a budget and perhaps L."""
    residuals = []
    for seed in range(seeds):  # one by one: each calibrates for itself
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = da.root(case.sampler(), case.x0, budget=budget, L=L, seed=seed)
        residuals.append(float(np.linalg.norm(case.F(result.x[None]))))
    return float(np.mean(residuals))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6, help="the page says 6")
    parser.add_argument("--only", nargs="*", help="problems whose names begin like this; nothing is written")
    parser.add_argument("--most", type=int, default=10**9, help="no larger budgets; nothing is written")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--part", default="0/1", help="every n-th line: 0/2 and 1/2 for two processes")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    lines = [(case, budget) for case in cases() for budget in case.budgets if budget <= arguments.most]
    if arguments.only:
        lines = [one for one in lines if any(one[0].name.startswith(name) for name in arguments.only)]
    rows = []
    for case, budget in lines[part::parts]:
        seeds = arguments.seeds if budget < LARGE else max(2, arguments.seeds // 3)
        seeds *= IN_ONE_DIMENSION if case.x0.size == 1 else 1
        found = baselines(case, budget, seeds, arguments.folder)
        floor = FLOOR * float(np.linalg.norm(case.F(case.x0[None])))
        best = min(BASELINES, key=lambda name: found[name])
        ours = [default(case, budget, seeds, L) for L in (case.L, None)]
        least, averaged = max(found[best], floor), max(found["averaged"], floor)
        row = {
            "name": case.name, "kind": case.kind, "budget": budget, "vanishing": case.vanishing, "best": best,
            "tuned": found[best], "averaged": found["averaged"], "ours": ours,
            "ratios": [max(one, floor) / least for one in ours],
            "to_averaged": [max(one, floor) / averaged for one in ours],
        }  # fmt: skip
        rows.append(row)
        print(line(row), flush=True)
    print(summary(rows))
    if not arguments.only and parts == 1 and arguments.most == 10**9:
        PAGE.write_text(page(rows, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"wrote {PAGE.name}")


def line(row: dict) -> str:
    ratios = " | ".join(_ratio(ratio) for ratio in row["ratios"])
    ours = " | ".join(f"{one:.3g}" for one in row["ours"])
    return (
        f"| {row['name']} | {row['kind']} | {row['budget']:,} | {ours} | {row['tuned']:.3g} ({row['best']}) | "
        f"{row['averaged']:.3g} | {ratios} |"
    )


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.1e}"


def summary(rows: list[dict]) -> str:
    """What the table says, in numbers."""
    text = []
    for at, name in enumerate(("with L", "without L")):
        ratios = np.array([row["ratios"][at] for row in rows])
        vanishing = [row["ratios"][at] for row in rows if row["vanishing"]]
        others = [row["to_averaged"][at] for row in rows]
        worst = _ratio(max(vanishing)) if vanishing else "none"
        text.append(
            f"- {name}: at or below the best tuned baseline on {np.count_nonzero(ratios <= 1)} of {len(rows)} lines, "
            f"largest ratio {_ratio(ratios.max())}; where noise vanishes {worst}; median ratio to tuned averaging "
            f"{np.median(others):.2f}."
        )
    return "\n".join(text)


def page(rows: list[dict], text: str) -> str:
    """The page with a new summary and table between its marks; the text around them is written by hand."""
    before, rest = text.split("<!-- table -->")
    after = rest.split("<!-- end -->")[1]
    table = "\n".join([*TABLE_HEAD, *map(line, rows)])
    return f"{before}<!-- table -->\n{summary(rows)}\n\n{table}\n<!-- end -->{after}"


if __name__ == "__main__":
    main()
