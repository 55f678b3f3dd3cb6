"""Operators with a known F: wrong ones, on which a run must not be called a success falsely, and well-posed ones.

An `Operator` is a sampler together with what its author knows and a solver does not: F in closed form, the noise of a
sample, and the constants that a user would declare, some of them wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Map = Callable[[Array], Array]
Sample = Callable[[Array, int, np.random.Generator], Array]
Noise = Callable[[Array, int, np.random.Generator], Array]


@dataclass(frozen=True)
class Operator:
    """A sampler of F and the truth about it; x has the shape of x0.

    Attributes
    ----------
    F : function, the mean of a sample
    noise : function of (x, n, rng), the mean of the noise of n samples
    spread : function of x, the root mean square norm of the noise of one sample
    L, sigma, D : constants that a user declares; true where the operator has them
    eps : a residual that a user might ask for
    make_sample : function, optional; makes a sampler, with a memory of its own, other than F + noise
    residual : function of x, optional: the smallest residual that anybody could defend; by default the norm of F
    near_normal : bool, whether means of 8 samples are near enough to normal for a bound six standard errors away
    """

    name: str
    F: Map
    x0: Array
    noise: Noise
    spread: Callable[[Array], float]
    L: float = 1.0
    sigma: float = 0.5
    D: float = 1.5
    eps: float = 0.25
    make_sample: Callable[[], Sample] | None = None
    residual: Callable[[Array], float] | None = None
    near_normal: bool = True
    doors: tuple[str, ...] = ("root", "fixed_point", "saddle", "inclusion", "box")

    def sampler(self) -> Sample:
        """A new sampler."""
        if self.make_sample is not None:
            return self.make_sample()
        return lambda x, n, rng: self.F(x) + self.noise(x, n, rng)

    def values(self, x: Array) -> Array:
        """F at x, infinite where that cannot be computed."""
        with np.errstate(all="ignore"):
            return np.nan_to_num(self.F(np.asarray(x, float)), nan=np.inf)


def gaussian(sigma: float) -> dict[str, Any]:
    """Noise with E|noise|^2 = sigma^2 at every x."""

    def noise(x: Array, n: int, rng: np.random.Generator) -> Array:
        return rng.normal(size=x.shape) * (sigma / np.sqrt(n * x.size))

    return {"noise": noise, "spread": lambda x: sigma}


def _careful(F: Map) -> Map:
    """The same F, silent where it overflows."""

    def value(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return F(x)

    return value


def _wrong(name: str, F: Map, x0: Any, sigma: float = 0.5, **facts: Any) -> Operator:
    return Operator(name, _careful(F), np.array(x0, float), **{**gaussian(sigma), "sigma": sigma, **facts})


def _sampled(name: str, make_sample: Callable[[], Sample], **facts: Any) -> Operator:
    """F(x) = x - 1 from 0 in two dimensions, sampled in a wrong way."""
    return _wrong(name, lambda x: x - 1, np.zeros(2), make_sample=make_sample, **facts)


def _sum_not_mean() -> Sample:
    return lambda x, n, rng: n * (x - 1) + np.sqrt(n) * 0.5 * rng.normal(size=2) / np.sqrt(2)


def _ignores_n() -> Sample:
    return lambda x, n, rng: x - 1 + 0.5 * rng.normal(size=2) / np.sqrt(2)


def _biased() -> Sample:
    return lambda x, n, rng: x - 1 + 0.5 / n + 0.5 * rng.normal(size=2) / np.sqrt(2 * n)


def _drifting() -> Sample:
    calls = 0

    def sample(x: Array, n: int, rng: np.random.Generator) -> Array:
        nonlocal calls
        calls += 1
        return x - 1 - min(1.0, calls / 500) + 0.5 * rng.normal(size=2) / np.sqrt(2 * n)

    return sample


def _own_randomness() -> Sample:
    own = np.random.default_rng(7)
    return lambda x, n, rng: x - 1 + 0.5 * own.normal(size=2) / np.sqrt(2 * n)


def _outside(low: float, high: float) -> Callable[[Array], float]:
    """The distance of x to the roots of all the operators that the samples could be of."""
    return lambda x: float(np.linalg.norm(x - np.clip(x, low, high)))


def _heavy(x: Array, n: int, rng: np.random.Generator) -> Array:
    return 0.15 * rng.standard_t(2.2, size=(n, x.size)).mean(axis=0)


def _rare(x: Array, n: int, rng: np.random.Generator) -> Array:
    return np.full(x.shape, 20 * (rng.binomial(n, 0.01) / n - 0.01)) + 0.1 * rng.normal(size=x.shape) / np.sqrt(n)


def _growing(x: Array, n: int, rng: np.random.Generator) -> Array:
    return 0.5 * (1 + 2 * np.linalg.norm(x)) * rng.normal(size=x.shape) / np.sqrt(n * x.size)


def _nan_beyond(x: Array) -> Array:
    return x - 1 if x[0] < 0.8 else np.full(x.shape, np.nan)


def _one_negative(x: Array) -> Array:
    return np.where(np.arange(x.size) == x.size - 1, -0.3, 1.0) * (x - 1)


def _linear(A: Any, root: Any, **facts: Any) -> dict[str, Any]:
    A, root = np.array(A, float), np.array(root, float)
    return {"F": lambda x: A @ (x - root), "x0": np.zeros(root.size), **facts}


def _rows(
    name: str, each: Callable[[Array, Array], Array], rows: int, x0: Array, spread: float, **facts: Any
) -> Operator:
    """A finite sum, sampled row by row; `each(x, i)` gives F_i(x) for an array i of rows."""

    def sample(x: Array, n: int, rng: np.random.Generator) -> Array:
        return each(x, rng.integers(rows, size=n)).mean(axis=0)

    everything = np.arange(rows)
    return Operator(
        name, lambda x: each(x, everything).mean(axis=0), x0, noise=gaussian(0)["noise"], spread=lambda x: spread,
        make_sample=lambda: sample, sigma=spread, **facts,
    )  # fmt: skip


def _least_squares() -> Operator:
    rng = np.random.default_rng(3)
    A = rng.normal(size=(200, 4))
    b = A @ np.ones(4) + 0.1 * rng.normal(size=200)
    L = float((A**2).sum(axis=1).max())
    return _rows(
        "least squares",
        lambda x, i: A[i] * (A[i] @ x - b[i])[:, None],
        200,
        np.zeros(4),
        5.5,
        L=L,
        D=2.2,
        eps=0.5,
        doors=("root", "saddle", "inclusion"),
    )


def _logistic() -> Operator:
    rng = np.random.default_rng(4)
    A = rng.normal(size=(300, 3))
    y = np.where(rng.random(300) < 1 / (1 + np.exp(-A @ np.array([1.0, -1, 0.5]))), 1.0, 0.0)

    def each(x: Array, i: Array) -> Array:
        return A[i] * (1 / (1 + np.exp(-A[i] @ x)) - y[i])[:, None] + 0.05 * x

    return _rows("logistic", each, 300, np.zeros(3), 0.9, L=3.5, D=2.0, eps=0.12, doors=("root", "inclusion", "box"))


def poisson_regression() -> Operator:
    """The score of a Poisson regression, log link: 442 rows of 10 standardised features and an intercept, from 0."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(442, 10)) + 0.7 * rng.normal(size=(442, 1))
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    common = features.mean(axis=1)
    y = 152 + 77 * (0.6 * common / common.std() + 0.8 * rng.normal(size=442))
    y, A = np.clip(np.round(y), 25, 346), np.column_stack([np.ones(442), features])

    def each(x: Array, i: Array) -> Array:
        with np.errstate(all="ignore"):
            return A[i] * (np.exp(A[i] @ x) - y[i])[:, None]

    return _rows("Poisson regression", each, 442, np.zeros(11), 600.0, L=1e4, D=6.0, eps=20.0, near_normal=False)


def _policy_evaluation() -> Operator:
    """x = r + 0.7 P x, sampled by one transition from each of five states."""
    rng = np.random.default_rng(5)
    P = rng.dirichlet(np.ones(5), size=5)
    r, cumulative = rng.normal(size=5), P.cumsum(axis=1)

    def sample(x: Array, n: int, rng: np.random.Generator) -> Array:
        following = (rng.random((n, 5, 1)) > cumulative).sum(axis=2).clip(max=4)
        return x - r - 0.7 * x[following].mean(axis=0)

    return Operator(
        "policy evaluation", lambda x: x - r - 0.7 * P @ x, np.zeros(5), noise=gaussian(0)["noise"],
        spread=lambda x: 1.5, make_sample=lambda: sample, L=2.0, sigma=1.5, D=6.0, eps=0.4,
        doors=("fixed_point", "root"),
    )  # fmt: skip


def _well(name: str, facts: dict[str, Any], sigma: float, **more: Any) -> Operator:
    return Operator(name, **{**facts, **gaussian(sigma), "sigma": sigma, **more})


WRONG = {
    one.name: one
    for one in (
        _wrong("constant", lambda x: np.array([1.0, -0.5]), [0, 0]),
        _wrong("constant without noise", lambda x: np.array([1.0, -0.5]), [0, 0], sigma=0.0),
        _wrong("decreasing", lambda x: -(x - 1), [0, 0]),
        _wrong("hyperbolic", lambda x: np.array([1, -1]) * (x - 1), [0, 0]),
        _wrong("rotation", lambda x: np.array([x[1] - 1, 1 - x[0]]), [0, 0]),
        _wrong("sign", lambda x: np.sign(x - 1), [0, 0]),
        _wrong("sine", lambda x: np.sin(x), [2, 4], D=3.0),
        _wrong("square root", lambda x: np.sign(x - 1) * np.sqrt(np.abs(x - 1)), [0, 0]),
        _wrong("distant root", lambda x: 0.01 * (x - 100), [0, 0], L=0.01, D=150.0),
        _wrong("distant root, L = 1", lambda x: 0.01 * (x - 100), [0, 0]),
        _wrong("no root: x^2 + 1", lambda x: x**2 + 1, [0.5, 0.5], D=1.0),
        _wrong("no root: exp", lambda x: np.exp(x), [0, 0], D=2.0),
        _wrong("no root: sin + 2", lambda x: np.sin(3 * x) + 2, [0, 0]),
        _wrong("cube", lambda x: (x - 1) ** 3, [4, 3], D=4.0),
        _wrong("double well", lambda x: x**3 - x, [0.1, -0.1], D=1.5),
        _wrong("saturated", lambda x: np.tanh(x - 8), [0, 0], D=12.0),
        _wrong("steep kink", lambda x: 100 * np.maximum(x - 1, 0) + 0.1 * (x - 1), [0, 0]),
        _wrong("jump", lambda x: x - 1 + 2 * (x > 0.5), [0, 0], D=1.0),
        _wrong("badly scaled", lambda x: np.array([300, 3e-3]) * (x - 1), [0, 0], L=300.0, eps=10.0),
        _sampled("sum in place of mean", _sum_not_mean),
        _sampled("n ignored", _ignores_n),
        _sampled("biased batches", _biased, residual=_outside(0.5, 1)),
        _sampled("drifting", _drifting, residual=_outside(1, 2), D=3.0),
        _sampled("own randomness", _own_randomness),
        _wrong("heavy tails", lambda x: x - 1, [0, 0], noise=_heavy, spread=lambda x: 0.7, near_normal=False),
        _wrong("rare noise", lambda x: x - 1, [0, 0], noise=_rare, spread=lambda x: 2.8, near_normal=False),
        _wrong(
            "growing noise", lambda x: x - 1, [0, 0], noise=_growing,
            spread=lambda x: 0.5 * (1 + 2 * float(np.linalg.norm(x))),
        ),
        _wrong("NaN beyond 0.8", _nan_beyond, [0, 0]),
        _wrong("one negative direction", _one_negative, np.zeros(10), D=3.5),
        _wrong("2(x - 1), L = 1", lambda x: 2 * (x - 1), np.zeros(3), D=2.0),
        poisson_regression(),
        _wrong("a sign forgotten", lambda x: np.array([x[0] + x[1], x[0] - x[1]]), [1, 1]),
    )
}  # fmt: skip

_ALL = ("root", "fixed_point", "saddle", "inclusion")
WELL_POSED = {
    one.name: one
    for one in (
        _well("linear", _linear([[1, 0.2], [0.2, 0.5]], [1, -1]), 1.0, L=1.1, D=1.5, doors=_ALL),
        _well("huber", {"F": lambda x: np.clip(x - 2, -1, 1), "x0": np.zeros(3)}, 1.0, L=1.0, D=3.5, eps=0.3),
        _logistic(),
        _least_squares(),
        _well(
            "bilinear with a strongly monotone part", _linear([[0.3, 1], [-1, 0.3]], [1, 1]), 0.5, L=3.7, D=1.5,
            eps=0.2, doors=("root", "saddle", "inclusion"),
        ),
        _policy_evaluation(),
        _well(
            "strongly monotone game", _linear([[2, 1, 0], [-1, 2, 0.5], [0, -0.5, 1]], [1, 0, -1]), 1.0, L=4.0, D=1.5,
            eps=0.3, doors=("root", "saddle", "inclusion"),
        ),
        _well(
            "quadratic in a box", _linear([[2, 0.5], [0.5, 1]], [1, 2]), 0.5, L=2.3, D=2.5, eps=0.2, doors=("box",)
        ),
        _well("low noise", _linear([[1, 0], [0, 0.3]], [2, 2]), 1e-3, L=1.0, D=3.0, eps=0.02, doors=_ALL),
        _well("no noise", _linear([[1, 0], [0, 0.3]], [2, 2]), 0.0, L=1.0, D=3.0, eps=0.02, doors=_ALL),
        _well("high noise", _linear([[1, 0], [0, 1]], [3, -3]), 10.0, L=1.0, D=4.5, eps=1.5, doors=_ALL),
        _well(
            "one dimension", {"F": lambda x: 0.5 * (x - 2), "x0": np.zeros(1)}, 0.5, L=0.5, D=2.0, eps=0.15,
            doors=("root", "fixed_point", "inclusion"),
        ),
        _well(
            "a hundred dimensions", {"F": lambda x: x - 1, "x0": np.zeros(100)}, 5.0, L=1.0, D=10.0, eps=1.5, doors=_ALL
        ),
        _well(
            "a matrix", {"F": lambda x: 0.5 * (x - 1) + 0.1 * (x - 1).sum(), "x0": np.zeros((2, 3))}, 1.0, L=1.2, D=2.5,
            eps=0.3, doors=("root", "fixed_point", "inclusion"),
        ),
    )
}  # fmt: skip


def truth(operator: Operator, x: Array, box: tuple[float, float] = (-np.inf, np.inf)) -> float:
    """The residual at x: the distance of 0 from F(x) + the normal cone of a box at x."""
    if not np.all(np.isfinite(x)):
        return float("inf")
    low, high = x <= box[0], x >= box[1]
    if operator.residual is not None:
        return 0.0 if np.any(low | high) else operator.residual(x)
    values = operator.values(x)
    values = np.where(low, np.minimum(values, 0), np.where(high, np.maximum(values, 0), values))
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(values))
