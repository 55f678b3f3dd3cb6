"""Mirror-prox: averaged extragradient steps under constraints."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.problem import Problem
from dualanchor.core.session import Session, resolved
from dualanchor.core.types import Array
from dualanchor.methods._bases import TwoCall
from dualanchor.methods.averaged import share
from dualanchor.prox import Resolvent, simplex

GEOMETRIES = ("auto", "euclidean")
_ENTROPY_SCALE = 2 * sqrt(2)  # R over the root of the largest divergence from the start; the best on matrix games


@dataclass(frozen=True)
class MirrorProx(TwoCall):
    r"""Mirror-prox: extragradient steps under a constraint or a penalty, for monotone operators, averaged.

    Looks ahead with one batch and steps with another; the mean of the half-steps is returned. Anytime. Without a step
    size it needs no constant: each block of the prox has a step that falls with the errors of its half-steps.
    Nemirovski 2004; Juditsky, Nemirovski, Tauvel 2011; adaptive steps as in Bach and Levy 2019.

    .. math:: x_{k+1/2} = P_{z_k}(\alpha_k F_{B_k}(z_k)), \qquad z_{k+1} = P_{z_k}(\alpha_k F_{B'_k}(x_{k+1/2})), \qquad
        x_n = \frac1n \sum_{k<n} x_{k+1/2}

    :math:`P_z(g)` is `prox(z - g)` or, on a simplex, :math:`z e^{-g}` scaled to its sum (the start mixed with equal
    parts, and with all past steps at the newest step size). For one block, without a step size,
    :math:`\alpha_k = R/\sqrt{\sum_{i<k}\|F_{B'_i}(x_{i+1/2}) - F_{B_i}(z_i)\|_*^2}` with R the smaller of diameter and
    `distance`, or the distance travelled once that is larger; on a simplex :math:`R^2 = 8\max_y \mathrm{KL}(y, z_0)`
    and half the range of the vector as norm.

    Guarantee for a set with a constant step of at most :math:`1/(\sqrt3 M)`, in the norm of the geometry: the gap
    :math:`\mathbb E\sup_y \langle F(y), x_n - y\rangle` is :math:`O(R^2/(\alpha n) + \alpha\sigma^2/B)` (Juditsky et
    al., Theorem 1). None known for steps of several blocks, nor with `reuse`.

    Parameters
    ----------
    step_size : float, optional, :math:`\alpha`; 1/(2M) or the problem's own by name; found during the run if None
    prox : callable `prox(z, step)` for rows z, with a step for each, (rows, 1); no constraint if None
    batch_size : int, Schedule, Paired or list of int; size of each of the independent batches
    geometry : "auto", entropy on the simplices of the prox for arrays of NumPy, or "euclidean" everywhere
    reuse : bool
        Look ahead with the last batch at the last half-step instead of a new one: half the samples per step (Popov).
    distance : float, optional; a first guess of the distance to a solution, where no smaller one is the diameter
    composite_step : float, optional
        The step of the `Composite` oracle that is sampled in place of F, with `reuse`; x is then the point z with
        :math:`x_n` minus this step times the mean of the samples.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> oracle = da.AdditiveNoise(lambda x: x - np.array([2.0, 0.5]), sigma=0.1)
    >>> problem = da.Problem(oracle, np.zeros(2))
    >>> result = da.solve(problem, da.MirrorProx(prox=da.prox.box(0, 1)), budget=4000)
    >>> np.round(result.x, 1)
    array([1. , 0.5])
    """

    step_size: Any = None
    prox: Any = None
    batch_size: Any = 1
    geometry: str = "auto"
    reuse: bool = False
    distance: Any = None
    composite_step: Any = None

    id = "mirror-prox"
    title = "Mirror-prox, averaged extragradient under constraints"
    citation = "mirror-prox"
    compared = False
    tuned = ("step_size",)
    positive: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        given = ("step_size", "distance", "composite_step")
        self.require_positive(*(name for name in given if getattr(self, name) is not None))
        check.choice(self.geometry, "MirrorProx: geometry", GEOMETRIES)
        if self.prox is not None:
            check.function(self.prox, "MirrorProx: prox", "prox(z, step)", 2)
        if not isinstance(self.reuse, bool):
            raise ArgumentTypeError("MirrorProx: reuse must be True or False", repr(self.reuse), "Use reuse=True")
        if self.composite_step is not None and not self.reuse:
            raise ArgumentError("MirrorProx: composite_step goes with reuse=True", "reuse=False", "Pass reuse=True")

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Method.cost(self, k, s, coin) if self.reuse else super().cost(k, s, coin)

    def parameters(self) -> dict[str, Any]:
        known = self.prox.describe() if isinstance(self.prox, Resolvent) else getattr(self.prox, "__qualname__", None)
        return {**super().parameters(), "prox": known}

    def init(self, x0: Array) -> State:
        blocks = self._blocks(x0)
        origin = _joined(block.origin(x0[:, block.part], self.composite_step) for block in blocks)
        s = State(x=arrays.copy(x0), origin=origin)
        s.z = _joined(block.first_z(origin[:, block.part]) for block in blocks)
        if self.step_size is None:
            s.radius = _joined(block.radius(origin[:, block.part], self.distance) for block in blocks)
            s.errors = arrays.zeros_like(s.radius)
        if self.reuse:
            s.last_sample = arrays.zeros_like(x0)
        if self.composite_step is not None:
            s.mean, s.mean_sample = arrays.copy(x0), arrays.zeros_like(x0)
        return s

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        blocks, a = self._blocks(s.x), self.composite_step
        errors = s.errors if self.step_size is None else None

        def with_steps() -> Iterator[tuple[_Euclidean, Any]]:
            return zip(blocks, self._steps(s, errors, len(blocks)), strict=True)

        if self.reuse:
            here = s.last_sample
        else:
            here = self.first_call(k, _joined(block.iterate(s, step) for block, step in with_steps()), F)
            if errors is not None and k == 0:
                errors = _squared_norms(blocks, here)
        half_steps = [block.half_step(s, step, here[:, block.part]) for block, step in with_steps()]
        half, normal = (_joined(parts) for parts in zip(*half_steps, strict=True))
        there = self.second_call(k, half, F) if a is None else self.second_call(k, half + a * normal, F) - normal
        if errors is not None:
            errors = errors + _squared_norms(blocks, there - here)
        s.z = _joined(block.next_z(s, step, there[:, block.part]) for block, step in with_steps())
        if errors is not None:
            s.errors = errors
            s.radius = _joined(block.next_radius(s, s.radius[:, i : i + 1]) for i, block in enumerate(blocks))
        if self.reuse:
            s.last_sample = there
        weight = share(k + 1, "uniform")
        if a is None:
            s.x += weight * (half - s.x)
        else:
            s.mean += weight * (half - s.mean)
            s.mean_sample += weight * (there - s.mean_sample)
            s.x = s.mean - a * s.mean_sample

    def _steps(self, s: State, errors: Array | None, count: int) -> list[Any]:
        """The step of each block: the one given, or (rows, 1), R over the root of its sum of squared errors."""
        if errors is None:
            return [self.step_size] * count
        xp = arrays.namespace(errors)
        steps = s.radius / xp.where(errors > 0, errors, xp.ones_like(errors)) ** 0.5
        return [steps[:, i : i + 1] for i in range(count)]

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        chosen = super().defaults(problem, budget, given)
        if chosen["step_size"] is None and "prox" not in given and "distance" not in given:
            rule = f"{cls.id}: step_size must be given where neither a bounded set nor a distance is"
            raise ArgumentError(rule, f"problem {problem.name!r}", "Pass step_size, prox or distance")
        return chosen

    def _blocks(self, x: Array) -> list["_Euclidean"]:
        known, d = isinstance(self.prox, Resolvent), x.shape[1]
        entropic = simplex if self.geometry == "auto" and isinstance(x, np.ndarray) else ()
        blocks = self.prox.blocks_of(d) if known else [(slice(0, d), self.prox)]
        return [(_Entropy if isinstance(prox, entropic) else _Euclidean)(part, prox) for part, prox in blocks]


class _Euclidean(NamedTuple):
    """A block with steps prox(z - step g)."""

    part: slice  # its coordinates
    prox: Any  # for rows; None for the identity

    def origin(self, x0: Array, step: Any) -> Array:
        """Where the iteration starts: x0 moved into the set, or prox(x0, step) with the step of a composite problem."""
        moved = step is not None or getattr(self.prox, "is_projection", False)
        return self._resolved(x0, 1.0 if step is None else step) if moved else arrays.copy(x0)

    def first_z(self, origin: Array) -> Array:
        """The first z; here z is the iterate."""
        return arrays.copy(origin)

    def radius(self, origin: Array, distance: Any) -> Array:
        """R, how far away a solution may be, (rows, 1)."""
        diameter = self.prox.diameter(origin.shape[1]) if isinstance(self.prox, Resolvent) else None
        known = [value for value in (diameter, distance) if value is not None]
        if (distance := min(known, default=None)) is None:
            rule = "MirrorProx: without a step size, a block that is not bounded needs a distance"
            raise ArgumentError(rule, f"prox = {self.prox}", "Pass distance, a guess of how far x0 is from a solution")
        return arrays.zeros_like(origin[:, :1]) + (distance or 1.0)  # for a single point any step will do

    def iterate(self, s: State, step: Any) -> Array:
        """The iterate that z stands for."""
        return s.z[:, self.part]

    def half_step(self, s: State, step: Any, g: Array) -> tuple[Array, Array]:
        """x_{k+1/2}, and an element of the normal cone or of the subdifferential there."""
        z = s.z[:, self.part] - step * g
        x = self._resolved(z, step)
        return x, (z - x) / step

    def next_z(self, s: State, step: Any, g: Array) -> Array:
        """The next z, by a step with g."""
        return self._resolved(s.z[:, self.part] - step * g, step)

    def squared_norm(self, g: Array) -> Array:
        """The square of the dual norm, (rows, 1)."""
        return arrays.row_squares(g)[:, None]

    def next_radius(self, s: State, radius: Array) -> Array:
        """The larger of R and the distance travelled."""
        travelled = self.squared_norm(s.z[:, self.part] - s.origin[:, self.part]) ** 0.5
        return arrays.namespace(radius).maximum(radius, travelled)

    def _resolved(self, z: Array, step: Any) -> Array:
        return z if self.prox is None else resolved(self.prox, z, step)


class _Entropy(_Euclidean):
    """A block in a simplex with multiplicative steps: z is the sum of all samples, `origin` the start in logarithms."""

    def origin(self, x0: Array, step: Any) -> Array:
        equal = self.prox.total / x0.shape[1]
        return np.log((0.5 * (self.prox(x0) + equal)) / self.prox.total)

    def first_z(self, origin: Array) -> Array:
        return np.zeros_like(origin)

    def radius(self, origin: Array, distance: Any) -> Array:
        return _ENTROPY_SCALE * np.sqrt(-np.minimum.reduce(origin, axis=1, keepdims=True))

    def iterate(self, s: State, step: Any) -> Array:
        return self._weights(s, step, s.z[:, self.part])

    def _weights(self, s: State, step: Any, samples: Array) -> Array:
        weights = s.origin[:, self.part] - step * (self.prox.total * samples)
        weights -= np.maximum.reduce(weights, axis=1, keepdims=True)
        np.exp(weights, out=weights)
        weights *= self.prox.total / np.add.reduce(weights, axis=1, keepdims=True)
        return weights

    def half_step(self, s: State, step: Any, g: Array) -> tuple[Array, Array]:
        return self._weights(s, step, s.z[:, self.part] + g), np.zeros_like(g)

    def next_z(self, s: State, step: Any, g: Array) -> Array:
        return s.z[:, self.part] + g

    def squared_norm(self, g: Array) -> Array:
        range_ = np.maximum.reduce(g, axis=1, keepdims=True) - np.minimum.reduce(g, axis=1, keepdims=True)
        return (0.5 * self.prox.total * range_) ** 2

    def next_radius(self, s: State, radius: Array) -> Array:
        return radius


def _joined(parts: Iterable[Array]) -> Array:
    """Blocks (rows, ...) next to each other."""
    first, *others = parts
    join = np.concatenate if isinstance(first, np.ndarray) else arrays.namespace(first).concat
    return join([first, *others], axis=1) if others else first


def _squared_norms(blocks: list[_Euclidean], g: Array) -> Array:
    return _joined(block.squared_norm(g[:, block.part]) for block in blocks)
