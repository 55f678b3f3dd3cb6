"""Writes docs/untuned.md: the untuned default against baselines tuned over their grids, on problems of many kinds.

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
    parser.add_argument("--seeds", type=int, default=10)
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
        PAGE.write_text(page(rows, arguments.seeds), encoding="utf-8")
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


def page(rows: list[dict], seeds: int) -> str:
    table = "\n".join(line(row) for row in rows)
    large = f"a third of that from {LARGE:,} samples on, where of these methods only SGDA and SEG are run"
    large = large if any(row["budget"] >= LARGE for row in rows) else "no line has more than 20,000 samples"
    return f"""# The untuned default against tuned baselines

`da.root(sample, x0, budget=...)` with nothing but L, or not even that, against the paper's methods (SGDA, SEG,
S-Dual-OHM, S-OHM, Halpern-PAGE, RAIN), each tuned over the paper's grid on {seeds} seeds and reported on {seeds} others
({IN_ONE_DIMENSION} times as many in one dimension; {large}).
Tuned averaging, averaged SGDA with its best step, stands beside them. All have the same budget in samples; that of the
default also pays for its calibration and its certificate, about 15 %.
Numbers are means of the true residual at the point returned; the last two columns are the default with and without L
over the best tuned baseline. Below {FLOOR:g} of the residual at x0 rounding decides, and residuals count as that.

{summary(rows)}

| problem | kind | samples | with L | without L | best tuned baseline | averaged, tuned | ratio | without L |
|---|---|--:|--:|--:|--:|--:|--:|--:|
{table}

Made by `tools/untuned_table.py`; the problems are in `tools/untuned_problems.py`. Every line counts, also where the
default lost.

How to read it: the thresholds of `auto` were chosen while looking at these problems, and at some of these seeds, so
the table shows what the rules can do and is no independent test of them. Lines in one dimension have more seeds than
the others since it was seen that 6 are too few there: with 6, the ratios of "service level" were 1.58 and 4.97.

Problems drawn anew. Before the last change of the rules, on the same kinds of problems, with 4 other seeds and against
SGDA, SEG and S-Dual-OHM only, budgets up to 5,000: at most 1 on 24 of 34 lines with L and on 22 without. The others,
with and without L: consistent rows (3.1 to 6.3; 5.3 to 9.3), interpolation (7.3; 7.8), service level (4.4 and 2.7;
3.3 and 2.6), price of a stock with 1,000 samples (1.06; 1.49), and without L logistic regression (1.23) and the
piecewise linear model (1.14). This was not repeated with the present rules.

Problems of other kinds: 46 of them (regressions on real data, Bellman operators, Markov games, queues, inventories,
quantiles, CVaR, saturated and badly scaled operators, rare and heavy noise), against the best of SGDA with a constant
step, SGDA with steps that fall like one over the root of k, and **tail averages**, each with the best of eight steps.
They were a test of the rules of that time: with 500, 3,000 and 20,000 samples, at or below the best on 43 of 130 lines
with L and on 41 without, within 2 times on 98 and 89, more than 5 times behind on 9 and 17, median 1.22 and 1.31. The
rules were then changed by what was seen there, in about eight variants judged on these problems and seeds, so what
follows is no test: with 3,000 samples and 24 runs each, within 2 times on 37 of 45 problems with L (37 before) and on
37 without (31 before), median 1.12 (1.18) and 1.19 (1.22). With 500 samples nothing was gained: median 1.39 (1.34) and
1.81 (1.83). One rule was made stricter after that, and these figures were not all measured again.
Problems on which the default is far behind: F decreases around x0, which it takes for a wrong sign and refuses;
coordinates in units that differ by 10,000, where samples are yes or no; noise that is largest at the root.

Outliers. Single runs may be worse than the mean. On 12 problems in one to three dimensions, with counts, yes-or-no
samples, Gaussian and heavy noise, 1,000 and 4,000 samples, and first steps 30 times too short, right, or 6 times too
long, the largest of 200 residuals was at most 9 times their median (a Gaussian error has about 5), before the mean
learned to leave scattered iterates behind. The exception was one run in 200 on an exponential with a step 6 times too
long (48 and 16 times).
This paragraph and the two before it were measured by hand; no script writes them.

Known limits:

- Where noise vanishes, residuals fall exponentially, and every sample that is not spent on a step costs a factor. The
  default keeps 80 samples for its certificate and, from 1,280 samples on or without L, at least 64 for calibration.
  On "consistent rows" tuned SGDA falls by 1 % with each sample. With as many samples fewer it is itself behind by a
  factor of 2.4 (1,000 samples, with L), 4.0 (without) and 6.9 (2,000 samples).
- Yes-or-no samples in one dimension ("service level"): the first steps are long, and only samples show that. With
  1,000 samples the default is behind tuned SGDA; from 4,000 on it is not.
- A bounded loss without L, whose curvature is not seen from x0, may cost a part of the run until its steps have become
  short enough.
- In nearly bilinear games the mean turns with the iterates.
- Units of F and of x do not matter, bit for bit for powers of two: without L, calibration first looks within a part of
  |x0|. From x0 = 0 nothing but F tells the unit of length. It is found where samples repeat and F is nearly linear over
  the first looks, at a distance of 0.01. Otherwise start from an x0 of about the right size.
"""


if __name__ == "__main__":
    main()
