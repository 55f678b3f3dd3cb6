"""The operators on which statements are checked, and evaluations of them with and without noise."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dualanchor.core.oracle import Oracle
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.types import Array
from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.oracles.finite_sum import FiniteSum
from dualanchor.theory.step_tables import Evaluation

Operator = Callable[[Array], Array]
SIGMA = 1.0  # the noise of one sample, unless a case says otherwise


def inner(a: Array, b: Array) -> Array:
    """Inner products along the last axis."""
    return np.asarray(np.einsum("...i,...i->...", a, b))


def square(a: Array) -> Array:
    """Squared Euclidean norms along the last axis."""
    return inner(a, a)


def norm(a: Array) -> Array:
    """Euclidean norms along the last axis."""
    return np.asarray(np.linalg.norm(a, axis=-1))


def exact(operator: Operator) -> Evaluation:
    """The evaluations of a noiseless oracle."""
    return lambda k, x: operator(x)


def noisy(operator: Operator, noise: Array) -> Evaluation:
    """The evaluations of an oracle with additive noise, (rounds, rows, d)."""
    return lambda k, x: operator(x) + noise[k]


@dataclass(frozen=True)
class Case:
    """An operator F, (rows, d) to (rows, d), 1/L-cocoercive and mu-strongly monotone, with a start and a nearest root.

    Runs on it take `step_size`, 2/L by default. Samples are those of `oracle`, Gaussian noise by default.
    """

    name: str
    F: Operator
    x0: Array
    root: Array | float = 0.0
    L: float = 2.0
    mu: float = 0.0
    step_size: float = 1.0
    sigma: float = SIGMA
    oracle: Oracle | None = None

    @property
    def D(self) -> float:
        return float(norm(self.x0 - self.root))

    def T(self, x: Array) -> Array:
        return x - self.step_size * self.F(x)

    def start(self, rows: int) -> Array:
        return np.tile(self.x0, (rows, 1))

    def noise(self, rng: np.random.Generator, rounds: int, rows: int, sigma: float = 1.0) -> Array:
        """Gaussian noise with E|e|^2 = sigma^2, (rounds, rows, d)."""
        return sigma / np.sqrt(self.x0.size) * rng.standard_normal((rounds, rows, self.x0.size))

    def problem(self) -> Problem:
        oracle = self.oracle or AdditiveNoise(self.F, self.sigma, vectorized=True)
        constants = Constants(L=self.L, mu=self.mu, sigma=self.sigma, D=self.D)
        return Problem(oracle, x0=self.x0, constants=constants, name=self.name)


def _along(d: int, distance: float) -> Array:
    return np.full(d, distance / np.sqrt(d))


def flip(d: int = 8, D: float = 0.0) -> Case:
    """T = -I: it amplifies noise the most of all maps known."""
    return Case("T = -I" + ("" if D else ", D = 0"), lambda x: 2 * x, _along(d, D))


def still(d: int = 8) -> Case:
    """T = I, F = 0: a change of one batch stays as it is."""
    return Case("T = I", np.zeros_like, np.zeros(d))


def turn(d: int, D: float = 1.0) -> Case:
    """T turns R^d so that T^d = -I (experiment 1): worst for every method when d = N and D lies along (1, .., 1)."""

    def F(x: Array) -> Array:
        return x - np.concatenate([-x[:, -1:], x[:, :-1]], axis=1)

    return Case(f"turn of R^{d}", F, _along(d, D))


def reflections() -> Case:
    """T = R_ball R_box, two reflections that share fixed points: Peaceman and Rachford, not linear."""
    center, radius = np.array([1.0, 0.5, 0.0, -0.5]), 1.3
    low, high = np.array([-0.1, -0.2, -2.0, -0.3]), np.array([3.0, 0.2, 0.1, 0.4])

    def T(x: Array) -> Array:
        x = 2 * np.clip(x, low, high) - x
        away = x - center
        return 2 * (center + away * np.minimum(1.0, radius / np.maximum(norm(away), 1e-300))[:, None]) - x

    return Case("two reflections", lambda x: x - T(x), np.array([-1.0, 2.0, 2.0, -2.0]))


def scalar(slope: float = 1.0, step_size: float = 0.5, D: float = 1.0, d: int = 8) -> Case:
    """F(x) = slope x, as strongly monotone as it is cocoercive."""
    name = f"F(x) = {slope:g}x" if slope != 1 else "F(x) = x"
    return Case(name, lambda x: slope * x, _along(d, D), L=slope, mu=slope, step_size=step_size)


def spiral() -> Case:
    """F(x) = mu x + J x with a quarter turn J and mu = 1/2, step 1/L; L = (mu^2 + 1)/mu."""
    A, L = np.array([[0.5, 1.0], [-1.0, 0.5]]), 2.5
    return Case("spiral, L/mu = 5", lambda x: x @ A, _along(2, 1.0), L=L, mu=0.5, step_size=1 / L)


def location() -> Case:
    """Sample gradients of a robust location problem: clip(x - xi) with xi = +-0.8; noise depends on x, under A2."""
    d, xi = 8, np.array([[0.8], [-0.8]])
    oracle = FiniteSum(lambda x, i: np.clip(x - xi[i], -1, 1), n=2)
    sigma = 0.8 * float(np.sqrt(d))
    return Case("robust location", oracle.operator, _along(d, 3.0), L=1.0, step_size=2.0, sigma=sigma, oracle=oracle)


class Wild:
    """An arbitrary bounded, discontinuous operator with heavy-tailed noise that depends on x."""

    def __init__(self, rng: np.random.Generator, rounds: int, d: int = 4, rows: int = 50) -> None:
        W, C, b, jump = rng.normal(size=(d, d)), rng.normal(size=(d, d)), rng.normal(size=d), rng.normal(size=d)
        self.F: Operator = lambda x: np.sin(x @ W + b) @ C + jump * np.sign(x)
        self.x0 = rng.normal(size=(rows, d))
        self._xi = rng.standard_t(2.0, size=(rounds, rows, d))  # without a variance

    def evaluate(self, k: int, x: Array) -> Array:
        return self.F(x) + self._xi[k] * np.cos(x[:, ::-1])
