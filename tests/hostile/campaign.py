"""The campaign: operators x constants x modes x front doors, every result compared with the truth.

`python -m tests.hostile.campaign --help` runs any part of it and prints the table of outcomes. The rules:

* A result with success and eps claims |F(x)| <= eps. By a certificate or a theorem with a confidence it may be false in
  1 - confidence of all runs; by a theorem in root mean square the residual exceeds sqrt(20) eps in at most 5 % of them
  (Markov's inequality). A result with success and without eps claims that the residual has fallen.
* A false success beyond what a certificate of that many samples leaves open (six standard errors) is **gross**; none is
  allowed. The others are counted in pools (an operator; an operator and a mode, a door, or a set of constants) against
  their error rate, by a binomial test with an error of 1e-3 for all the pools together. The mean square of residuals
  that a theorem bounds in root mean square is tested as well.
* "Fallen" is judged only where it can be seen: the squares of the residuals at x0 and at x must differ by two (gross:
  six) standard errors of an estimate from an eighth of the samples. So an x0 that is a root, as far as that many
  samples show, makes no false success, wherever noise takes x within that width.
* With success or without, x is finite and not seen to be far above x0 (three times its residual), unless so few samples
  were spent that nothing could be certified.
* Success where a guarantee was asked for and no theorem is claimed is gross, and so is success at a point that is not
  finite, or with a certificate whose lower bound is above eps.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import product
from math import inf, sqrt
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from scipy.stats import binom
from tests.hostile.operators import WELL_POSED, WRONG, Operator, truth

import dualanchor as da
from dualanchor.core.claim import ClaimKind
from dualanchor.core.errors import DualAnchorError

DOORS = ("root", "fixed_point", "saddle", "inclusion", "box")
MODES: dict[str, dict[str, Any]] = {
    "eps": {},
    "confidence": {"confidence": 0.95},
    "budget": {"budget": 2000},
    "small budget": {"budget": 127},
    "tiny budget": {"budget": 20},
    "guarantee": {"budget": 2000, "guarantee": True},
    "method": {"budget": 2000, "method": "s-dual-ohm"},
    "method, eps": {"method": "sgda"},
}
FACTORS = (0.01, 0.1, 0.5, 2.0, 10.0, 100.0)
CONSTANTS: dict[str, tuple[str, ...] | tuple[str, float]] = {
    "right": (),
    "none": ("L", "sigma", "D"),
    "no L": ("L",),
    "no sigma, D": ("sigma", "D"),
    **{f"{name} x {factor:g}": (name, factor) for name in ("L", "sigma", "D") for factor in FACTORS},
}
MAX_SAMPLES = 20_000
FAR = 1e6  # half the width of a box that bounds nothing
RATE = 0.05  # of false statements at a confidence of 95 %
UNCHECKED = 64  # samples that pay for no certificate
GROSS, PLAIN = 6.0, 2.0  # standard errors


@dataclass(frozen=True)
class Case:
    """One run of the campaign."""

    kind: str
    operator: str
    door: str
    mode: str
    constants: str
    seed: int


@dataclass
class Outcome:
    """What came of a case.

    `verdict` is refused, silent, true, false or gross; `why` explains the last two. `far`: with success or without, x
    is not finite or seen to be far above x0.
    """

    case: Case
    verdict: str
    why: str = ""
    start: float = inf
    end: float = inf
    bound: float | None = None
    covered: bool | None = None
    far: bool = False
    claim: str = ""
    findings: list[str] = field(default_factory=list)

    @property
    def success(self) -> bool:
        return self.verdict in ("true", "false", "gross")


def run(case: Case) -> Outcome:
    """Run a case and judge its result."""
    operator = (WRONG if case.kind == "wrong" else WELL_POSED)[case.operator]
    box = box_of(operator, case.door)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = call(operator, case)
    except DualAnchorError as error:
        return Outcome(case, "refused", str(error).splitlines()[0], truth(operator, operator.x0, box))
    return judge(case, operator, result, box)


def call(operator: Operator, case: Case) -> da.Result:
    """Go through the door."""
    mode = MODES[case.mode]
    options: dict[str, Any] = {"seed": case.seed, **mode}
    if "budget" not in mode:
        options |= {"eps": operator.eps, "max_samples": MAX_SAMPLES}
    change = CONSTANTS[case.constants]
    known = {"L": operator.L, "sigma": operator.sigma, "D": operator.D}
    if len(change) == 2 and isinstance(change[1], float):
        known[change[0]] *= change[1]
    else:
        known = {name: value for name, value in known.items() if name not in change}
    return through(case.door, operator, **options, **known)


def through(door: str, operator: Operator, **options: Any) -> da.Result:
    """The operator, wrapped for a door."""
    sample, x0 = operator.sampler(), operator.x0
    if door == "root":
        return da.root(sample, x0, **options)
    if door == "fixed_point":
        return da.fixed_point(lambda x, n, rng: x - sample(x, n, rng), x0, **options)
    if door == "saddle":
        k = x0.size // 2

        def joined(u: Any, v: Any, n: int, rng: np.random.Generator) -> Any:
            return sample(np.concatenate([u, v]), n, rng)

        return da.saddle(
            lambda u, v, n, rng: joined(u, v, n, rng)[:k],
            lambda u, v, n, rng: -joined(u, v, n, rng)[k:],
            (x0[:k], x0[k:]),
            **options,
        )
    return da.inclusion(sample, da.prox.box(*box_of(operator, door)), x0, **options)


def box_of(operator: Operator, door: str) -> tuple[float, float]:
    """The box that x is bounded by: near x0, so far that it bounds nothing in practice, or none."""
    if door == "box":
        return float(operator.x0.min()) - 2, float(operator.x0.max()) + 0.75
    return (-FAR, FAR) if door == "inclusion" else (-inf, inf)


def judge(case: Case, operator: Operator, result: da.Result, box: tuple[float, float]) -> Outcome:
    """The verdict on a result."""
    x = np.concatenate([np.ravel(part) for part in result.x]) if isinstance(result.x, tuple) else np.asarray(result.x)
    start, end = truth(operator, operator.x0, box), truth(operator, x, box)
    eps = None if "budget" in MODES[case.mode] else operator.eps
    claim, certificate = result.claim, result.certificate
    outcome = Outcome(case, "silent", start=start, end=end, bound=eps, claim="" if claim is None else claim.kind.value)
    outcome.findings = [one.code for one in result.findings]
    if certificate is not None:
        outcome.covered = bool(end <= certificate.upper * (1 + 1e-9) + 1e-12)  # rounding
    tested = max(16, int(result.nfev) // 16)  # an eighth of the samples, half of them at each of the points
    spreads = operator.spread(operator.x0), operator.spread(x)
    if result.nfev > UNCHECKED:
        outcome.far = end > 3 * start and _apart(end, spreads[1], start, spreads[0], tested, GROSS)
    if not result.success:
        return outcome
    outcome.verdict = "true"
    if not np.isfinite(end):
        return _called(outcome, "gross", "not finite")
    if case.mode == "guarantee" and (claim is None or not claim.by_theorem):
        return _called(outcome, "gross", "no guarantee")
    lower = getattr(certificate, "lower", None)
    if eps is not None and lower is not None and lower > eps:
        return _called(outcome, "gross", "lower bound above eps")
    rms = claim is not None and claim.kind is ClaimKind.THEOREM_RMS
    bound = claim.bound if rms and case.mode == "guarantee" else eps
    outcome.bound = bound
    seen = 16 if certificate is None else int(np.min(certificate.samples))
    if bound is not None and end > bound:
        spread = operator.spread(x)
        if operator.near_normal and end > 2 * bound and _apart(end, spread, bound, spread, seen, GROSS):
            return _called(outcome, "gross", f"above {'bound' if eps is None else 'eps'}")
        if end > bound * (sqrt(1 / RATE) if rms else 1.0):
            return _called(outcome, "false", f"above {'bound' if eps is None else 'eps'}")
    if end > start * (1 + 1e-9) and (eps is None or end > eps):
        for verdict, z in (("gross", GROSS), ("false", PLAIN)):
            if _apart(end, spreads[1], start, spreads[0], tested, z):
                return _called(outcome, verdict, "above x0")
    if eps is None and end > 0.99 * start and _apart(start, max(spreads), 0.0, max(spreads), tested, GROSS):
        return _called(outcome, "false", "did not fall")
    return outcome


def _called(outcome: Outcome, verdict: str, why: str) -> Outcome:
    outcome.verdict, outcome.why = verdict, why
    return outcome


def _apart(high: float, high_spread: float, low: float, low_spread: float, samples: int, z: float) -> bool:
    """Whether estimates of two squared residuals, from so many samples each, are z standard errors apart."""

    def error(value: float, spread: float) -> float:
        return 2 * value * spread / sqrt(samples) + sqrt(2) * spread**2 / samples

    return high**2 - low**2 > z * (error(high, high_spread) + error(low, low_spread))


def cases(kind: str, per_cell: int | None = None, operators: Iterable[str] | None = None) -> Iterator[Case]:
    """Cases of the matrix: for each operator, door and mode some sets of constants in turn, or all of them."""
    chosen = WRONG if kind == "wrong" else WELL_POSED
    for name in operators or chosen:
        at = crc32(name.encode()) % len(CONSTANTS)
        for door, mode in product(chosen[name].doors, MODES):
            for _ in range(per_cell or len(CONSTANTS)):
                constants = list(CONSTANTS)[at % len(CONSTANTS)]
                yield Case(kind, name, door, mode, constants, seed=at)
                at += 1


def too_often(outcomes: list[Outcome], pools: int, error: float = 1e-3) -> list[str]:
    """Pools in which successes are false more often than `RATE` allows; a test with this error for `pools` of them."""
    counted: dict[str, list[bool]] = defaultdict(list)
    for one in outcomes:
        if one.verdict == "refused":
            continue
        case = one.case
        for name in ("", case.mode, case.door, case.constants):
            counted[f"{case.operator} / {name}"].append(one.verdict in ("false", "gross"))
    return [
        f"{name}: {sum(false)} of {len(false)}"
        for name, false in counted.items()
        if any(false) and binom.sf(sum(false) - 1, len(false), RATE) < error / (pools * len(counted))
    ]


def above_root_mean_square(outcomes: Iterable[Outcome], z: float = 4.0) -> list[str]:
    """Operators and modes whose successes, by a theorem in root mean square, are above their bounds taken together."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for one in outcomes:
        if one.success and one.claim == ClaimKind.THEOREM_RMS.value and one.bound:
            ratios[f"{one.case.operator} / {one.case.mode}"].append((one.end / one.bound) ** 2)
    return [
        f"{name}: {np.sqrt(np.mean(values)):.3g} times the bound in {len(values)} runs"
        for name, values in ratios.items()
        if len(values) >= 8 and np.mean(values) - z * np.std(values, ddof=1) / sqrt(len(values)) > 1
    ]


def table(outcomes: Iterable[Outcome]) -> str:
    """Operator x mode: runs, successes, false ones and gross ones; bounds of certificates that were too small."""
    cells: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for one in outcomes:
        cells[one.case.operator][one.case.mode].append(one)
    lines = [f"{'operator':40s}" + "".join(f"{mode:>17s}" for mode in (*MODES, "bound too small", "far"))]
    for operator, modes in cells.items():
        texts = []
        for mode in MODES:
            found = [one for one in modes[mode] if one.verdict != "refused"]
            counts = [sum(one.verdict in verdicts for one in found) for verdicts in (("true",), ("false",), ("gross",))]
            texts.append(f"{counts[0]} / {len(found)}" + (f"  F {counts[1]} G {counts[2]}" if any(counts[1:]) else ""))
        covered = [one.covered for found in modes.values() for one in found if one.covered is not None]
        texts.append(f"{covered.count(False)} of {len(covered)}")
        texts.append(str(sum(one.far for found in modes.values() for one in found)))
        lines.append(f"{operator:40s}" + "".join(f"{text:>17s}" for text in texts))
    return "\n".join(lines)


def summary(outcomes: list[Outcome]) -> str:
    """The totals, why successes were false, and where."""
    verdicts = ("refused", "silent", "true", "false", "gross")
    lines = [", ".join(f"{sum(one.verdict == name for one in outcomes)} {name}" for name in verdicts)]
    for attribute in ("door", "mode", "constants"):
        counts: dict[str, int] = defaultdict(int)
        for one in outcomes:
            if one.verdict in ("false", "gross"):
                counts[getattr(one.case, attribute)] += 1
        lines.append(f"false by {attribute}: " + (", ".join(f"{k} {v}" for k, v in counts.items()) or "none"))
    reasons: dict[str, int] = defaultdict(int)
    for one in outcomes:
        if one.verdict in ("false", "gross"):
            reasons[f"{one.verdict}, {one.why}"] += 1
    lines.append(f"x far above x0: {sum(one.far for one in outcomes)}")
    lines.append("why: " + (", ".join(f"{name} {count}" for name, count in reasons.items()) or "no false success"))
    return "\n".join(lines)


def run_all(chosen: list[Case], jobs: int = 1) -> list[Outcome]:
    """The outcomes of cases, in their order."""
    if jobs == 1:
        return [run(case) for case in chosen]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(run, chosen, chunksize=20))


def main(show: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile.campaign", description="Hostile runs and their table."
    )
    parser.add_argument("--kind", choices=["wrong", "well-posed"], default="wrong")
    parser.add_argument("--per-cell", type=int, default=4, help="sets of constants for each operator, door and mode")
    parser.add_argument("--operators", nargs="*", help="only these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", type=int, default=20, help="how many false successes to list")
    parser.add_argument("--report", type=Path, help="also write what is printed to this file")
    options = parser.parse_args()
    outcomes = run_all(list(cases(options.kind, options.per_cell, options.operators)), options.jobs)
    false = sorted(
        (one for one in outcomes if one.verdict in ("false", "gross")), key=lambda one: one.verdict != "gross"
    )
    often = too_often(outcomes, len({one.case.operator for one in outcomes}))
    often += above_root_mean_square(outcomes)
    parts = [table(outcomes), summary(outcomes), "more often false than 5 %: " + ("; ".join(often) or "no pool")]
    false += [one for one in outcomes if one.far and not one.success]
    parts += [line(one) for one in false[: options.list]]
    text = "\n\n".join(parts[:3]) + "\n" + "\n".join(parts[3:])
    show(text)
    if options.report is not None:
        options.report.write_text(text + "\n", encoding="utf-8")


def line(one: Outcome) -> str:
    facts = asdict(one.case)
    place = " | ".join(str(facts[name]) for name in ("operator", "door", "mode", "constants", "seed"))
    return f"{one.verdict}, {one.why}: {place}: {one.start:.3g} -> {one.end:.3g} (bound {one.bound}), {one.claim}"


if __name__ == "__main__":
    main()
