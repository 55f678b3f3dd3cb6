"""`calibrate`: estimate the noise and local constants of an operator around the start, before anything is solved."""

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from dualanchor.advise import estimates
from dualanchor.advise.calibration import Calibration, judged
from dualanchor.advise.probes import Pair, Probe, Project, Sketch, orthogonal_part, unit, unit_findings
from dualanchor.advise.rotation import rotation
from dualanchor.advise.sampled import Source, open_samples
from dualanchor.core import check
from dualanchor.core.arrays import quiet
from dualanchor.core.errors import ArgumentError, OracleError
from dualanchor.core.finding import Finding, Severity
from dualanchor.core.streams import Purpose
from dualanchor.core.types import Array

MIN_SAMPLES = 16
_SMALL = 64  # below this many samples `run_small` tests only monotonicity, far too small constants, and batches
_SMALL_DIRECTIONS = 3  # directions that `run_small` uses

_BATCHES, _BATCH_SIZE = 8, 8  # batches that are compared with single samples, and their size
_SKETCH_BATCHES = (8, 4)  # batches of the sketch where there is noise: the first number that is affordable
_SKETCH_DIRECTIONS = 64  # random directions of the sketch, at most
_EXTRA_DIRECTIONS = 16  # chosen directions added to the sketch, at most
_EXACT_PAIRS, _NOISY_PAIRS = (4, 3), (2, 1)  # pairs in search of the largest and the smallest slope
_MIN_DRAWS = 8  # draws of a pair where there is noise; fewer give no usable test
_NEAR, _NEAR_NOISY = 0.01, 0.5  # first distance, relative to the radius or |x0|; larger where samples do not repeat
_RESCALINGS, _RESCALE_FACTOR = 4, 50.0  # corrections of that distance, made if it was off by more than the factor
_BENT = 4.0  # times: if the slope changes by more, it says nothing about where a root is
_FAR_MULTIPLES = (1.0, 2.0, 4.0)  # distances from x0, in units of the radius, where the noise is measured again
_FAR_DRAWS = 24  # draws at each point there, on at most four points per distance; a single point may have half


def calibrate(
    oracle: Source,
    x0: Any = None,
    samples: int = 2000,
    *,
    args: tuple[Any, ...] = (),
    seed: int = 0,
    rng: np.random.Generator | None = None,
    radius: float | None = None,
    confidence: float = 0.95,
    project: Project | None = None,
) -> Calibration:
    r"""Estimate the noise at x0, examine the operator around it, and report what contradicts the theorems.

    Only samples are used, from separate streams: a run with the same seed is independent of them. Single samples at x0
    give :math:`\sigma` and :math:`\|F(x_0)\|`; pairs of points give the constants of cocoercivity, violations of
    monotonicity and an upper bound on :math:`\mu`; many directions at once give the rotation index; samples further
    out show whether the noise grows.

    Constants of the operator are **local**, measured along pairs near x0. The true L can be far larger, so its estimate
    only ever shrinks a step. Each kind of alarm has a nominal false-alarm rate of 2 in 10,000 calibrations. With fewer
    than 64 samples only gross violations are detected: a wrong sign of F, a constant that is far too small, and
    batches that are sums instead of means.

    Parameters
    ----------
    oracle : Oracle, Problem or callable `sample(x, n, rng)` that returns the mean of n samples at x
    x0 : number, array, tree of arrays, torch.nn.Module or Result, optional
        The point to examine, by default a problem's start. A callable gets it in its shape, any oracle as (d,).
    samples : int, maximum number of evaluations, at least 16; with few of them some tests are skipped, see the findings
    args : tuple, further arguments of a callable
    seed, rng : int or numpy.random.Generator, the source of all randomness
    radius : float, optional
        A guess of the distance to a root; samples are taken up to four times as far. Estimated if left out.
    confidence : float, of each interval by itself
    project : callable, optional; maps points (rows, d) to the nearest ones where the oracle is defined

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
    settings: dict[str, Any] = {"seed": seed, "purpose": Purpose.PILOT, "owner": "calibrate", "args": args}
    F, points, _ = open_samples(oracle, x0, one_point=True, **settings)
    if len(points) != 1:
        raise ArgumentError("calibrate: x0 must be one point (d,)", f"{len(points)} points", "Calibrate at one of them")
    return _Calibrator(Probe(F, points, samples, seed, project), radius, confidence).run()


class _Calibrator:
    """The course of one calibration: spends the samples of a probe and collects pairs and findings."""

    def __init__(self, probe: Probe, radius: float | None, confidence: float) -> None:
        self.probe = probe
        self.radius = radius
        self.confidence = confidence
        self.pairs: list[Pair] = []
        self.findings: list[Finding] = []
        self.slope: float | None = None  # |F(y) - F(x0)|/|y - x0|, once it is clearly above noise and rounding

    def run(self) -> Calibration:
        """Spend 10 % of the samples at x0, 25 % on a sketch, 22 % far out, 30 % on pairs, the rest at x0."""
        probe = self.probe
        if probe.samples < _SMALL:
            return self.run_small()
        probe.sample_start(max(8, probe.samples // 10))
        radius = self.find_radius()
        distance = max(radius * (0.1 if probe.replayable else 1.0), sqrt(probe.eps) * probe.norm)
        sketch = self.sketch(distance, probe.samples // 4)
        noise_far = self.measure_far_noise(radius, 22 * probe.samples // 100)
        batches = min(_BATCHES, max(2, probe.samples // 36))
        batch_evals = batches * (_BATCH_SIZE + 1)
        pair_evals = min(3 * probe.samples // 10, probe.remaining - batch_evals)
        probe.sample_start(probe.remaining - pair_evals - batch_evals)  # first: the pairs start in the direction of F
        sketch = self.find_extreme_slopes(distance, pair_evals, sketch)
        self.compare_batches(batches, _BATCH_SIZE)
        probe.sample_start(probe.remaining)
        with quiet():  # squares of large values are infinite, and so is the rounding of an F that does not change
            return self.conclude(radius, sketch, noise_far)

    def run_small(self) -> Calibration:
        """With very few samples: pairs that share their samples at x0, in up to three directions, and one batch."""
        probe = self.probe
        batch_size = _BATCH_SIZE if probe.samples >= 2 * MIN_SAMPLES else _BATCH_SIZE // 2
        probe.sample_start(2)
        count = min(_SMALL_DIRECTIONS, probe.dimension)
        others = [probe.random_direction() for _ in range(count - 1)]
        directions = np.linalg.qr(np.stack([self.direction_of_F(), *others], axis=1))[0].T
        distance = self.first_distance()
        self.pairs = probe.pairs(directions, distance, (probe.remaining - batch_size) // (count + 1))
        for pair in self.pairs:
            self.update_slope(pair)
        self.findings.append(Finding.of("growth-not-tested"))
        self.compare_batches(1, batch_size)
        probe.sample_start(probe.remaining)
        with quiet():
            return self.conclude(self.radius or distance, None, [])

    def first_distance(self) -> float:
        near = _NEAR if self.probe.replayable else _NEAR_NOISY
        return near * (self.radius or self.probe.norm or 1.0)

    def find_radius(self) -> float:
        """The radius given, or |F(x0)| over the slope measured near x0; |x0|, or 1 at 0, if no slope leads there."""
        probe = self.probe
        distance = self.first_distance()
        for attempt in range(1 if probe.samples < 256 else 4):
            direction = self.direction_of_F() if attempt % 2 == 0 else probe.random_direction()
            self.update_slope(self.add_pair(direction, distance, _MIN_DRAWS))
            if self.slope is not None:
                break
            distance *= 8
        if self.radius is not None:
            return self.radius
        residual = self.visible_residual()
        if not (self.slope and residual > 0):
            return probe.norm or 1.0
        for _ in range(_RESCALINGS if probe.replayable else 0):  # |x0| may be far from the scale of the problem
            corrected = max(_NEAR * residual / self.slope, sqrt(probe.eps) * probe.norm)
            off = corrected / distance
            if 1 / _RESCALE_FACTOR <= off <= _RESCALE_FACTOR or probe.remaining < probe.samples // 2:
                break
            nearby, slope, distance = self.pairs.pop(), self.slope, corrected
            self.update_slope(self.add_pair(self.direction_of_F(), distance, _MIN_DRAWS))
            if off > 1 and not 1 / _BENT <= self.slope / slope <= _BENT:  # F is not linear as far as that
                self.slope, self.pairs = slope, [*self.pairs, nearby]
                return probe.norm or 1.0
        return max(residual / self.slope, 0.0 if probe.replayable else distance)  # noise hides changes nearer by

    def visible_residual(self) -> float:
        """The estimate of |F(x0)|, or its upper bound where the noise hides it."""
        residual = estimates.residual(self.probe.start, self.confidence)
        return residual.value if residual.low > 0 else residual.high

    def add_pair(self, direction: Array, distance: float, draws: int) -> Pair:
        self.pairs.append(self.probe.pair(direction, distance, draws))
        return self.pairs[-1]

    def update_slope(self, pair: Pair) -> None:
        square, error = estimates.mean_and_error(pair.products)
        if square > 4 * error and sqrt(square) > 10 * pair.rounding:
            self.slope = sqrt(square)

    def direction_of_F(self) -> Array:
        mean = self.probe.start.mean
        return unit(mean) if mean.any() else self.probe.random_direction()

    @property
    def noisy(self) -> bool:
        """Whether difference quotients vary from draw to draw."""
        return any(np.ptp(pair.square) > self.probe.tolerance * pair.square.max() for pair in self.pairs)

    def sketch(self, distance: float, evals: int) -> Sketch | None:
        """Difference quotients along random orthonormal directions; None if too few are affordable."""
        probe = self.probe
        evals = min(evals, probe.remaining)
        wanted = min(probe.dimension, _SKETCH_DIRECTIONS)
        batches = next((b for b in _SKETCH_BATCHES if self.noisy and evals >= b * (wanted + 1)), 2)
        count = min(wanted, evals // batches - 1, probe.max_draws // batches)
        if count < min(2, probe.dimension):
            return None
        size = max(1, evals // (batches * (count + 1))) if self.noisy else 1
        return probe.sketch(probe.random_directions(count), distance, batches, size)

    def find_extreme_slopes(self, distance: float, evals: int, sketch: Sketch | None) -> Sketch | None:
        """Pairs along a power iteration from F(x0), then pairs where F seems to increase least; the wider sketch."""
        if sketch is not None and sketch.exact and not self.noisy:
            before = self.probe.evals
            sketch = self.widen(sketch, distance, evals // 2 // len(sketch.batches))
            evals -= self.probe.evals - before
        largest, smallest = _NOISY_PAIRS if self.noisy else _EXACT_PAIRS
        draws = max(_MIN_DRAWS if self.noisy else 2, evals // (2 * (largest + smallest)))
        affordable = evals // (2 * draws)
        largest = min(largest, max(affordable // 2, affordable - smallest))
        first = len(self.pairs)
        direction = self.direction_of_F()
        for k in range(largest):
            pair = self.add_pair(direction, distance, draws)
            if k == 0:
                self.update_slope(pair)
            if not pair.image.any():
                break
            direction = unit(pair.image)
        self.find_smallest_slope(distance, draws, min(smallest, affordable - largest), sketch, self.pairs[first:])
        return sketch

    def widen(self, sketch: Sketch, distance: float, count: int) -> Sketch:
        """The sketch with the images of the directions of least increase added to its span (a Krylov space)."""
        basis = np.linalg.qr(sketch.directions.T)[0].T  # orthonormal rows
        for _ in range(min(count, self.probe.dimension - len(sketch.directions), _EXTRA_DIRECTIONS)):
            image = estimates.lowest_combination(sketch.directions, sketch.images[0]) @ sketch.images[0]
            extra = orthogonal_part(image, basis)
            if np.linalg.norm(extra) <= 1e-6 * np.linalg.norm(image):
                extra = orthogonal_part(self.probe.random_direction(), basis)
            sketch = self.probe.extend(sketch, unit(extra)[None], distance)
            added = orthogonal_part(sketch.directions[-1], basis)  # the domain may have changed the direction
            if np.linalg.norm(added) > 1e-6:
                basis = np.concatenate([basis, unit(added)[None]])
        return sketch

    def find_smallest_slope(
        self, distance: float, draws: int, count: int, sketch: Sketch | None, chain: list[Pair]
    ) -> None:
        """Add pairs along the direction of least increase in the span so far, and every other time widen the span."""
        directions = [pair.direction for pair in chain]
        images = [pair.image for pair in chain]
        if sketch is not None:
            directions += list(sketch.directions)
            images += list(sketch.images.mean(axis=0))
        for k in range(count if directions else 0):
            lowest = estimates.lowest_combination(np.array(directions), np.array(images))
            direction = unit(lowest @ np.array(directions))
            if k % 2 == 1:
                extra = images[-1] - (images[-1] @ directions[-1]) * directions[-1]
                visible = np.linalg.norm(extra) > 1e-6 * np.linalg.norm(images[-1])
                direction = unit(extra) if visible else self.probe.random_direction()
            pair = self.add_pair(direction, distance, draws)
            directions.append(pair.direction)
            images.append(pair.image)

    def measure_far_noise(self, radius: float, evals: int) -> list[estimates.FarNoise]:
        """The noise at a few distances from x0, as far out as the oracle can be sampled."""
        draws = min(evals, self.probe.remaining) // 2 // len(_FAR_MULTIPLES)
        points = min(4, max(1, draws // _FAR_DRAWS))
        if draws < _FAR_DRAWS // 2:
            self.findings.append(Finding.of("growth-not-tested"))
            return []
        measured = []
        for multiple in _FAR_MULTIPLES:
            distance = multiple * radius
            directions = (self.probe.random_direction() for _ in range(points))
            try:
                pairs = [self.probe.pair(direction, distance, draws // points) for direction in directions]
            except OracleError as error:
                self.findings.append(Finding.of("no-far-samples", distance=distance, error=error.parts[1]))
                break
            self.pairs += pairs
            measured.append(estimates.far_noise(pairs, self.probe.start, len(_FAR_MULTIPLES)))
        return measured

    def compare_batches(self, count: int, size: int) -> None:
        """Compare batches with single samples from the same state of the streams, or with those at x0."""
        probe = self.probe
        if probe.broken_promise:
            self.findings.append(Finding.of("broken-promise"))
        if probe.replayable and probe.remaining >= count * (size + 1):
            singles, batches = probe.single_and_batch_means(count, size)
        else:
            singles, batches = None, probe.batch_means(count, size)
        if probe.F.oracle.independent_samples:
            return
        self.findings += estimates.batch_findings(probe.start, batches, size, singles)
        if count * size < _BATCH_SIZE:
            self.findings.append(Finding.of("batches-not-tested"))

    def conclude(self, radius: float, sketch: Sketch | None, noise_far: list[estimates.FarNoise]) -> Calibration:
        probe = self.probe
        quotients = estimates.Quotients(self.pairs, sketch, independent=probe.samples >= _SMALL)
        violations = quotients.violations()
        local_M = quotients.lipschitz()
        L_mean, not_cocoercive = quotients.cocoercivity(self.confidence, single=False)
        with_intervals = {
            "sigma": estimates.noise(probe.start, self.confidence),
            "residual": estimates.residual(probe.start, self.confidence),
            "local_L": quotients.cocoercivity(self.confidence, single=True)[0] if probe.replayable else None,
            "local_L_mean": L_mean,
            "rotation": None if sketch is None else rotation(sketch),
        }
        numbers: dict[str, Any] = {name: estimate and estimate.value for name, estimate in with_intervals.items()}
        numbers |= {f"{name}_interval": estimate and estimate[1:] for name, estimate in with_intervals.items()}
        slope = self.slope or local_M
        if slope is None:
            self.findings.append(Finding.of("no-visible-change"))
        self.findings += unit_findings(self.probe.start, self.pairs)
        almost_sure = 1 - 2 * estimates.FALSE_ALARM
        calibration = Calibration(
            **numbers,
            local_M=local_M,
            mu_at_most=quotients.mu_at_most(self.confidence),
            L_at_least=max(quotients.L_at_least(single) for single in (probe.replayable, False)),
            L_mean_at_least=quotients.L_at_least(single=False),
            M_at_least=max(quotients.M_at_least(single) for single in (probe.replayable, False)),
            sigma_at_least=estimates.noise(probe.start, almost_sure).low,
            residual_at_least=estimates.residual(probe.start, almost_sure).low,
            pairs=quotients.pairs,
            violations=len(violations),
            steepest_violation=float(violations.min()) if len(violations) else None,
            decreasing=quotients.is_decreasing(probe.dimension),
            not_cocoercive=not_cocoercive,
            sigma_at=tuple((far.distance, far.sigma) for far in noise_far),
            noise_grows=any(far.is_larger for far in noise_far),
            D_guess=self.visible_residual() / slope if slope else None,
            radius=radius,
            **{name: getattr(probe, name) for name in ("replayable", "own_randomness", "dimension", "samples", "seed")},
            draws=int(np.max(probe.F.draws)),
            evals=probe.evals,
            confidence=self.confidence,
        )
        most_severe_first = list(reversed(Severity)).index
        findings = [*self.findings, *judged(calibration)]
        findings.sort(key=lambda finding: most_severe_first(finding.severity))
        return replace(calibration, findings=tuple(findings))
