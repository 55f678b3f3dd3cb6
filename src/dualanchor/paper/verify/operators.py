"""The operators on which statements are checked: those that attain a bound, and some that are nothing special."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualanchor.core.oracle import Batch, Oracle
from dualanchor.core.problem import Constants, Problem
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array
from dualanchor.oracles.additive import AdditiveNoise
from dualanchor.paper.verify.paths import Operator, norm


@dataclass(frozen=True)
class Case:
    """An operator with its constants, a start and the nearest root.

    Attributes
    ----------
    name : str
        How it is called in the table.
    F : callable
        (rows, d) to (rows, d).
    x0, root : arrays of shape (d,)
        Start and root.
    L, mu : float
        F is 1/L-cocoercive and mu-strongly monotone.
    step_size : float
        The step of the runs on it, 2/L unless it says otherwise.
    """

    name: str
    F: Operator
    x0: Array
    root: Array
    L: float = 2.0
    mu: float = 0.0
    step_size: float = 1.0

    @property
    def D(self) -> float:
        """Distance from the start to the root."""
        return float(norm(self.x0 - self.root))

    def T(self, x: Array) -> Array:
        """The map whose fixed points are the roots."""
        return x - self.step_size * self.F(x)

    def start(self, rows: int) -> Array:
        """The start for so many rows."""
        return np.tile(self.x0, (rows, 1))

    def noise(self, rng: np.random.Generator, rounds: int, rows: int, sigma: float = 1.0) -> Array:
        """Gaussian noise with E|e|^2 = sigma^2, (rounds, rows, d)."""
        d = self.x0.size
        return sigma / np.sqrt(d) * rng.standard_normal((rounds, rows, d))

    def problem(self, sigma: float) -> Problem:
        """The same as a Problem with Gaussian noise."""
        oracle = AdditiveNoise(self.F, sigma, vectorized=True)
        constants = Constants(L=self.L, mu=self.mu, sigma=sigma, D=self.D)
        return Problem(oracle, x0=self.x0, constants=constants, root=self.root, name=self.name)


def _along(d: int, distance: float) -> Array:
    return np.full(d, distance / np.sqrt(d))


def flip(d: int = 8, D: float = 0.0) -> Case:
    """T = -I: of all maps known it lets most noise through."""
    return Case("T = -I" + ("" if D else ", D = 0"), lambda x: 2 * x, _along(d, D), np.zeros(d))


def still(d: int = 8) -> Case:
    """T = I, F = 0: a change of one batch stays as it is."""
    return Case("T = I", np.zeros_like, np.zeros(d), np.zeros(d))


def turn(d: int, D: float = 1.0) -> Case:
    """T turns R^d so that T^d = -I (experiment 1): worst for every method when d = N and D lies along (1, .., 1)."""

    def F(x: Array) -> Array:
        return x - np.concatenate([-x[:, -1:], x[:, :-1]], axis=1)

    return Case(f"turn of R^{d}", F, _along(d, D), np.zeros(d))


def reflections() -> Case:
    """T = R_ball R_box, two reflections that share fixed points: Peaceman and Rachford, not linear."""
    center, radius = np.array([1.0, 0.5, 0.0, -0.5]), 1.3
    low, high = np.array([-0.1, -0.2, -2.0, -0.3]), np.array([3.0, 0.2, 0.1, 0.4])

    def T(x: Array) -> Array:
        x = 2 * np.clip(x, low, high) - x
        away = x - center
        return 2 * (center + away * np.minimum(1.0, radius / np.maximum(norm(away), 1e-300))[:, None]) - x

    return Case("two reflections", lambda x: x - T(x), np.array([-1.0, 2.0, 2.0, -2.0]), np.zeros(4))


def fold() -> Case:
    """T = |x| in each coordinate, from where it folds."""
    return Case("T = |x|", lambda x: x - np.abs(x), np.full(4, -0.05), np.zeros(4))


def scalar(slope: float = 1.0, step_size: float = 0.5, D: float = 1.0, d: int = 8) -> Case:
    """F(x) = slope x, as strongly monotone as it is cocoercive."""
    name = f"F(x) = {slope:g}x" if slope != 1 else "F(x) = x"
    return Case(name, lambda x: slope * x, _along(d, D), np.zeros(d), slope, slope, step_size)


def spiral(mu: float = 0.5, turning: float = 1.0, D: float = 1.0) -> Case:
    """F(x) = mu x + turning J x with a quarter turn J, step 1/L; L = (mu^2 + turning^2)/mu."""
    A = np.array([[mu, turning], [-turning, mu]])
    L = (mu**2 + turning**2) / mu
    return Case(f"spiral, L/mu = {L / mu:g}", lambda x: x @ A, _along(2, D), np.zeros(2), L, mu, 1 / L)


class Location(Oracle):
    r"""The sample gradient of a robust location problem: clip(x - xi) with xi = +-a, each coordinate by itself.

    Each sample is 1-cocoercive, its noise depends on x, and its variance is at most :math:`d\min(a, 1)^2`.
    """

    def __init__(self, a: float, d: int) -> None:
        self._a, self._d = a, d
        self.sigma = float(min(a, 1.0) * np.sqrt(d))

    def draw(self, streams: Streams, size: Any) -> Batch:
        signs = streams.integers(2, size * self._d).reshape(streams.rows, size, self._d)
        return Batch(size, signs.mean(axis=1))

    def mean(self, x: Array, batch: Batch) -> Array:
        return batch.data * np.clip(x - self._a, -1, 1) + (1 - batch.data) * np.clip(x + self._a, -1, 1)

    def operator(self, x: Array) -> Array:
        return 0.5 * np.clip(x - self._a, -1, 1) + 0.5 * np.clip(x + self._a, -1, 1)


def location(a: float = 0.8, d: int = 8, D: float = 3.0) -> Problem:
    """A problem with samples of `Location`: noise that depends on x, under A2."""
    oracle = Location(a, d)
    constants = Constants(L=1.0, sigma=oracle.sigma, D=D)
    return Problem(oracle, x0=_along(d, D), constants=constants, root=np.zeros(d), name="robust location")


class Wild:
    """A bounded, discontinuous operator that is nothing in particular, with heavy-tailed noise that depends on x.

    What holds along every path needs no more than this.
    """

    def __init__(self, rng: np.random.Generator, rounds: int, d: int = 4, rows: int = 50) -> None:
        W, C, b, jump = rng.normal(size=(d, d)), rng.normal(size=(d, d)), rng.normal(size=d), rng.normal(size=d)
        self.F: Operator = lambda x: np.sin(x @ W + b) @ C + jump * np.sign(x)
        self.x0 = rng.normal(size=(rows, d))
        self._xi = rng.standard_t(2.0, size=(rounds, rows, d))  # without a variance

    def answer(self, k: int, x: Array) -> Array:
        """The evaluation of draw number k at x."""
        return self.F(x) + self._xi[k] * np.cos(x[:, ::-1])
