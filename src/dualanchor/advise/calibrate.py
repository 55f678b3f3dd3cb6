"""What a few samples around the start say of an operator and its noise, before anything is solved."""

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from dualanchor.advise import estimates
from dualanchor.advise.calibration import Calibration, judged
from dualanchor.advise.probes import Directions, Pair, Probe, Project, outside, unit
from dualanchor.advise.sampled import Source, open_samples
from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, OracleError
from dualanchor.core.finding import Finding, Severity
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array

Growth = tuple[float, float, bool]  # distance from x0, sigma there, and whether that is larger than at x0

MIN_SAMPLES = 16
_SMALL = 64  # with fewer samples only the sign of F, constants that are far too small, and sums are looked for
_FEW_DIRECTIONS = 3  # then

_BATCHES, _BATCH = 8, 8  # means of 8 samples, at most 8 of them, compared with single samples
_IMAGES = (8, 4)  # batches for the rotation index, more or fewer of them, where there is noise
_DIRECTIONS = 64  # at most, for the rotation index
_WIDER = 16  # more directions, at most, in search of the smallest quotient
_EXACT, _NOISY = (4, 3), (2, 1)  # pairs in search of the largest and of the smallest quotient
_MIN_DRAWS = 8  # in a pair, where there is noise; fewer are no basis for a test
_DISTANCES = (1.0, 2.0, 4.0)  # from x0 in units of the radius, where the noise is measured again
_DIFFERENT = 100  # ratio of noise and of slopes in two coordinates that are in different units
_NEAR = 0.01  # of |x0|, or of the radius, where samples repeat: a first look
_RESCALED, _OTHER_UNITS = 4, 50.0  # such looks at most, where the distance was off by more than this factor
_FAR_DRAWS = 24  # at each point there, on at most four points per distance; at least half as many on a single one


def calibrate(
    oracle: Source,
    x0: Any = None,
    samples: int = 2000,
    *,
    seed: int = 0,
    rng: np.random.Generator | None = None,
    radius: float | None = None,
    confidence: float = 0.95,
    project: Project | None = None,
) -> Calibration:
    r"""Estimate the noise at x0, examine the operator around it, and say what speaks against the theorems.

    Only samples are used, from streams of their own: a run with the same seed is independent of them. Single samples at
    x0 give :math:`\sigma` and :math:`\|F(x_0)\|`; pairs of points the constants of cocoercivity, violations of
    monotonicity and an upper bound on :math:`\mu`; many directions at once the rotation index; samples further out
    whether the noise grows.

    Constants of the operator are **local**, seen along pairs near x0. The true L can be far larger, so its estimate
    only ever shrinks a step. Each alarm is meant to be raised without a cause in 2 of 10,000 calibrations. With fewer
    than 64 samples little more than the sign of F, constants that are far too small, and sums can be seen.

    Parameters
    ----------
    oracle : Oracle, Problem or callable `sample(x, n, rng)` that returns the mean of n samples at x
    x0 : number, array of shape (d,) or Result, optional; around which point, by default a problem's start
    samples : int, evaluations at most, at least 16; with few of them some parts are left out, and findings say which
    seed, rng : int or numpy.random.Generator, where all randomness comes from
    radius : float, optional
        A guess of the distance to a root; samples are taken up to four times as far. Estimated if left out.
    confidence : float, of the intervals, each by itself
    project : callable, optional; maps points (rows, d) to the nearest ones where the oracle may be sampled, if not all

    Examples
    --------
    >>> import dualanchor as da
    >>> found = da.calibrate(da.problems.affine(sigma=0.1), samples=2000)
    >>> abs(found.sigma - 0.1) < 0.01, found.violations, found.evals <= 2000
    (True, 0, True)
    """
    samples = check.count(samples, "calibrate: samples", MIN_SAMPLES)
    confidence = check.probability(confidence, "calibrate: confidence")
    if project is not None:
        check.function(project, "calibrate: project", "project(points)", 1)
    if radius is not None:
        radius = check.number(radius, "calibrate: radius", positive=True)
    seed = check.seed(seed, rng, "calibrate")
    F, points, _ = open_samples(oracle, x0, seed=seed, purpose=Purpose.PILOT, owner="calibrate")
    if len(points) != 1:
        raise ArgumentError("calibrate: x0 must be one point (d,)", f"{len(points)} points", "Calibrate at one of them")
    return _Calibrator(Probe(F, points, samples, seed, project), radius, confidence).run()


class _Calibrator:
    def __init__(self, probe: Probe, radius: float | None, confidence: float) -> None:
        self.probe, self.radius, self.confidence = probe, radius, confidence
        self.pairs: list[Pair] = []
        self.findings: list[Finding] = []
        self.slope: float | None = None  # |JF|/|F| at x0

    def run(self) -> Calibration:
        """A tenth of the samples at x0, 25 % along directions, 22 % far out, 30 % along a chain, the rest at x0."""
        probe = self.probe
        if probe.samples < _SMALL:
            return self.look()
        probe.start(max(8, probe.samples // 10))
        radius = self.find_scale()
        near = max(radius * (0.1 if probe.replayable else 1.0), sqrt(probe.eps) * probe.norm)
        seen = self.probe_around(near, probe.samples // 4)
        growths = self.probe_far(radius, 22 * probe.samples // 100)
        count = min(_BATCHES, max(2, probe.samples // 36))
        batches = count * (_BATCH + 1)
        chain = min(3 * probe.samples // 10, probe.remaining - batches)
        probe.start(probe.remaining - chain - batches)  # before the chain, whose first direction is that of F(x0)
        seen = self.follow(near, chain, seen)
        self.check_oracle(count, _BATCH)
        probe.start(probe.remaining)
        return self.conclude(radius, seen, growths)

    def look(self) -> Calibration:
        """With very few samples: the same ones at x0 and at up to three points around it, and one batch."""
        probe, size = self.probe, _BATCH if self.probe.samples >= 2 * MIN_SAMPLES else _BATCH // 2
        probe.start(2)
        count = min(_FEW_DIRECTIONS, probe.dimension)
        others = [probe.random_direction() for _ in range(count - 1)]
        directions = np.linalg.qr(np.stack([self.toward_image(), *others], axis=1))[0].T
        distance = (_NEAR if probe.replayable else 0.5) * (self.radius or probe.norm or 1.0)
        self.pairs = probe.fan(directions, distance, (probe.remaining - size) // (count + 1))
        for pair in self.pairs:
            self.set_slope(pair)
        self.findings.append(Finding.of("growth-not-tested"))
        self.check_oracle(1, size)
        probe.start(probe.remaining)
        return self.conclude(self.radius or distance, None, [])

    def find_scale(self) -> float:
        """The radius given, or |F(x0)| over the slope seen near x0; where none is seen |x0|, or 1 at 0."""
        probe = self.probe
        unit = self.radius or probe.norm or 1.0
        distance = (_NEAR if probe.replayable else 0.5) * unit
        for attempt in range(1 if probe.samples < 256 else 4):
            direction = self.toward_image() if attempt % 2 == 0 else probe.random_direction()
            self.set_slope(self.add_pair(direction, distance, _MIN_DRAWS))
            if self.slope is not None:
                break
            distance *= 8
        if self.radius is not None:
            return self.radius
        here = estimates.residual(probe.at_x0, self.confidence)
        size = here.value if here.low > 0 else here.high
        if not (self.slope and size > 0):
            return unit
        for _ in range(_RESCALED if probe.replayable else 0):  # x in other units: look as near as the radius says
            found = max(_NEAR * size / self.slope, sqrt(probe.eps) * probe.norm)
            if 1 / _OTHER_UNITS <= found / distance <= _OTHER_UNITS or probe.remaining < probe.samples // 2:
                break
            self.pairs.pop()
            distance = found
            self.set_slope(self.add_pair(self.toward_image(), distance, _MIN_DRAWS))
        return max(size / self.slope, 0.0 if probe.replayable else distance)  # where noise does not hide the change

    def add_pair(self, direction: Array, distance: float, draws: int) -> Pair:
        self.pairs.append(self.probe.pair(direction, distance, draws))
        return self.pairs[-1]

    def toward_image(self) -> Array:
        mean = self.probe.at_x0.mean
        return unit(mean) if mean.any() else self.probe.random_direction()

    def probe_around(self, distance: float, evals: int) -> Directions | None:
        probe, share = self.probe, min(evals, self.probe.remaining)
        wanted = min(probe.dimension, _DIRECTIONS)
        batches = next((b for b in _IMAGES if self.noisy and share >= b * (wanted + 1)), 2)
        count = min(wanted, share // batches - 1, probe.most // batches)
        if count < min(2, probe.dimension):
            return None
        size = max(1, share // (batches * (count + 1))) if self.noisy else 1
        return probe.along(probe.random_directions(count), distance, batches, size)

    def follow(self, distance: float, evals: int, seen: Directions | None) -> Directions | None:
        """A power iteration from F(x0), then the direction along which the operator seems to increase least."""
        share = evals
        if seen is not None and seen.exact and not self.noisy:
            start = self.probe.evals
            seen = self.widen(seen, distance, evals // 2 // len(seen.batches))
            share -= self.probe.evals - start
        steps, lows = _NOISY if self.noisy else _EXACT
        draws = max(_MIN_DRAWS if self.noisy else 2, share // (2 * (steps + lows)))
        affordable = share // (2 * draws)
        steps = min(steps, max(affordable // 2, affordable - lows))
        first, direction = len(self.pairs), self.toward_image()
        for k in range(steps):
            pair = self.add_pair(direction, distance, draws)
            if k == 0:
                self.set_slope(pair)
            if not pair.image.any():
                break
            direction = unit(pair.image)
        self.descend(distance, draws, min(lows, affordable - steps), seen, self.pairs[first:])
        return seen

    def widen(self, seen: Directions, distance: float, count: int) -> Directions:
        """More directions on the same samples: what F adds to the span along which it increases least."""
        for _ in range(min(count, self.probe.dimension - len(seen.directions), _WIDER)):
            lowest = estimates.lowest_combination(seen.directions, seen.images[0])
            image = lowest @ seen.images[0]
            extra = outside(image, seen.directions)
            if np.linalg.norm(extra) <= 1e-6 * np.linalg.norm(image):
                extra = outside(self.probe.random_direction(), seen.directions)
            seen = self.probe.extend(seen, unit(extra)[None], distance)
        return seen

    def set_slope(self, pair: Pair) -> None:
        square, error = estimates.mean_and_error(pair.leave_one_out)
        if square > 4 * error and sqrt(square) > 10 * pair.rounding:
            self.slope = sqrt(square)

    @property
    def noisy(self) -> bool:
        return any(np.ptp(pair.square) > self.probe.alike * pair.square.max() for pair in self.pairs)

    def descend(self, distance: float, draws: int, count: int, seen: Directions | None, chain: list[Pair]) -> None:
        directions, images = [pair.direction for pair in chain], [pair.image for pair in chain]
        if seen is not None:
            directions, images = [*directions, *seen.directions], [*images, *seen.images.mean(axis=0)]
        for k in range(count if directions else 0):
            direction = unit(
                estimates.lowest_combination(np.array(directions), np.array(images)) @ np.array(directions)
            )
            if k % 2 == 1:  # widen the span by what the last image adds to it
                extra = images[-1] - (images[-1] @ directions[-1]) * directions[-1]
                visible = np.linalg.norm(extra) > 1e-6 * np.linalg.norm(images[-1])
                direction = unit(extra) if visible else self.probe.random_direction()
            pair = self.add_pair(direction, distance, draws)
            directions.append(pair.direction)
            images.append(pair.image)

    def probe_far(self, radius: float, evals: int) -> list[Growth]:
        draws = min(evals, self.probe.remaining) // 2 // len(_DISTANCES)
        points = min(4, max(1, draws // _FAR_DRAWS))
        if draws < _FAR_DRAWS // 2:
            self.findings.append(Finding.of("growth-not-tested"))
            return []
        found = []
        for multiple in _DISTANCES:
            distance = multiple * radius
            directions = (self.probe.random_direction() for _ in range(points))
            try:
                pairs = [self.probe.pair(direction, distance, draws // points) for direction in directions]
            except OracleError as error:
                self.findings.append(Finding.of("no-far-samples", distance=distance, error=error.parts[1]))
                break
            self.pairs += pairs
            found.append(estimates.growth(pairs, self.probe.at_x0, len(_DISTANCES)))
        return found

    def check_oracle(self, count: int, size: int) -> None:
        """Compare a few batches with single samples, as far as samples are left for it."""
        probe = self.probe
        if probe.broken_promise:
            self.findings.append(Finding.of("broken-promise"))
        beside = probe.replayable and probe.remaining >= count * (size + 1)
        singles, batches = probe.beside_single(count, size) if beside else (None, probe.batches(count, size))
        self.findings += estimates.batch_findings(probe.at_x0, batches, size, singles)
        if count * size < _BATCH:
            self.findings.append(Finding.of("batches-not-tested"))

    def compare_scales(self) -> None:
        """Notice coordinates of different units, as the columns of a table often have: by noise and by slopes."""
        which, noise = self.probe.at_x0.scales
        slopes = np.sqrt(sum(pair.image[which] ** 2 for pair in self.pairs))
        scales = np.array([noise, slopes])[:, slopes > 0]
        if scales.shape[1] < 2:
            return
        large, small = scales[0].argmax(), scales[0].argmin()
        factor = (scales[:, large] / scales[:, small]).min()
        if factor >= _DIFFERENT:
            values = {"large": which[slopes > 0][large], "small": which[slopes > 0][small]}
            self.findings.append(Finding.of("scales-differ", factor=factor, **values))

    def conclude(self, radius: float, seen: Directions | None, growths: list[Growth]) -> Calibration:
        probe, quotients = self.probe, estimates.Quotients(self.pairs, seen, self.probe.samples >= _SMALL)
        residual = estimates.residual(probe.at_x0, self.confidence)
        against, M = quotients.violations(), quotients.lipschitz()
        L_mean, not_cocoercive = quotients.cocoercivity(self.confidence, single=False)
        with_intervals = {
            "sigma": estimates.noise(probe.at_x0, self.confidence),
            "residual": residual,
            "local_L": quotients.cocoercivity(self.confidence, single=True)[0] if probe.replayable else None,
            "local_L_mean": L_mean,
            "rotation": None if seen is None else estimates.rotation(seen),
        }
        numbers: dict[str, Any] = {name: one and one.value for name, one in with_intervals.items()}
        numbers |= {f"{name}_interval": one and one[1:] for name, one in with_intervals.items()}
        size, slope = residual.value if residual.low > 0 else residual.high, self.slope or M
        if slope is None:
            self.findings.append(Finding.of("no-visible-change"))
        self.compare_scales()
        made = Calibration(
            **numbers,
            local_M=M,
            mu_at_most=quotients.smallest_slope(self.confidence),
            L_at_least=max(quotients.least_L(single) for single in (probe.replayable, False)),
            M_at_least=max(quotients.least_M(single) for single in (probe.replayable, False)),
            sigma_at_least=estimates.noise(probe.at_x0, 1 - 2 * estimates.FALSE_ALARM).low,
            residual_at_least=estimates.residual(probe.at_x0, 1 - 2 * estimates.FALSE_ALARM).low,
            pairs=quotients.pairs,
            violations=len(against),
            steepest_violation=float(against.min()) if len(against) else None,
            decreasing=quotients.decreasing(probe.dimension),
            not_cocoercive=not_cocoercive,
            sigma_at=tuple((distance, sigma) for distance, sigma, _ in growths),
            noise_grows=any(grown for *_, grown in growths),
            D_guess=size / slope if slope else None,
            radius=radius,
            **{name: getattr(probe, name) for name in ("replayable", "own_randomness", "dimension", "samples", "seed")},
            draws=int(np.max(probe.F.draws)),
            evals=probe.evals,
            confidence=self.confidence,
        )
        weight = list(Severity).index
        findings = sorted([*self.findings, *judged(made)], key=lambda one: -weight(one.severity))
        return replace(made, findings=tuple(findings))
