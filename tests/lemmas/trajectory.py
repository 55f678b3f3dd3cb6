"""Runs of the library's methods with everything written down, and the operators they are run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dualanchor.paper.verify.operators import Operator, exact, norm
from dualanchor.theory.step_tables import Path, follow

__all__ = [
    "Nonexpansive",
    "Operator",
    "Path",
    "Wild",
    "assert_zero",
    "exact",
    "follow",
    "nonexpansive",
    "norm",
    "wild",
]


def assert_zero(value: Any, scale: Any, what: str, relative: float = 1e-11) -> None:
    """Fail unless |value| <= relative * scale everywhere."""
    value, scale = np.abs(value), np.asarray(scale)
    excess = np.max(value / np.maximum(scale, np.finfo(float).tiny), initial=0.0)
    assert excess <= relative, f"{what}: off by {excess:.3g} of the scale, {relative:.0e} is allowed"


# -- algebra: any operator, any noise --------------------------------------------------------------------------


@dataclass
class Wild:
    """A bounded, discontinuous operator that is nothing in particular, with noise of any size and shape."""

    seed: int
    d: int
    N: int
    alpha: float
    noise: float
    multiplicative: bool
    x0: np.ndarray = field(init=False, repr=False)
    ghost: np.ndarray = field(init=False, repr=False)
    operator: Operator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng, d = np.random.default_rng(self.seed), self.d
        W, C, b, jump = rng.normal(size=(d, d)), rng.normal(size=(d, d)), rng.normal(size=d), rng.normal(size=d)
        self.operator = lambda x: np.sin(x @ W + b) @ C + jump * np.sign(x)
        self.x0, self.ghost = rng.normal(size=(2, d)), rng.normal(size=(2, d))
        self._xi = self.noise * rng.standard_t(2.0, size=(self.N, 2, d))  # without a variance: algebra needs none

    def answer(self, k: int, x: np.ndarray) -> np.ndarray:
        xi = self._xi[k]
        return self.operator(x) + (xi * np.cos(x[:, ::-1]) if self.multiplicative else xi)


def wild(least: int = 1, most: int = 40) -> st.SearchStrategy[Wild]:
    """Any operator, horizon from `least` to `most`, step size and noise."""
    return st.builds(
        Wild,
        seed=st.integers(0, 2**32 - 1),
        d=st.integers(1, 5),
        N=st.integers(least, most),
        alpha=st.floats(0.01, 10.0),
        noise=st.sampled_from([0.0, 1e-3, 1.0, 100.0]),
        multiplicative=st.booleans(),
    )


# -- analysis: nonexpansive maps with a known fixed point ------------------------------------------------------

PIECES = ("turn", "shrink", "halfspace", "halfspace reflection", "ball", "ball reflection", "box reflection", "fold")


@dataclass
class Nonexpansive:
    """A composition of maps that are nonexpansive and share a fixed point; F = (I - T)/alpha, so L = 2/alpha."""

    seed: int
    d: int
    N: int
    alpha: float
    pieces: tuple[str, ...]
    contraction: float = 1.0
    root: np.ndarray = field(init=False, repr=False)
    x0: np.ndarray = field(init=False, repr=False)
    noise: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.root = rng.normal(size=self.d)
        self.x0 = self.root + rng.normal(size=(2, self.d)) * 10.0 ** rng.uniform(-2, 2)
        self._maps = [_piece(name, rng, self.root) for name in self.pieces]
        self.noise = rng.normal(size=(2 * self.N + 1, 2, self.d))

    @property
    def D(self) -> np.ndarray:
        return norm(self.x0 - self.root)

    def T(self, x: np.ndarray) -> np.ndarray:
        y = x
        for piece in self._maps:
            y = piece(y)
        return self.root + self.contraction * (y - self.root)

    def operator(self, x: np.ndarray) -> np.ndarray:
        return (x - self.T(x)) / self.alpha


def _piece(name: str, rng: np.random.Generator, root: np.ndarray) -> Operator:
    d = root.size
    U, _ = np.linalg.qr(rng.normal(size=(d, d)))
    V, _ = np.linalg.qr(rng.normal(size=(d, d)))
    a = U[0]
    if name == "turn":
        return lambda x: root + (x - root) @ U
    if name == "shrink":
        A = (U * rng.uniform(-1, 1, size=d)) @ V
        return lambda x: root + (x - root) @ A
    if name in ("halfspace", "halfspace reflection"):
        offset, factor = a @ root + rng.exponential(), 2.0 if "reflection" in name else 1.0
        return lambda x: x - factor * np.maximum(0.0, x @ a - offset)[:, None] * a
    if name in ("ball", "ball reflection"):
        center = root + rng.normal(size=d)
        radius = np.linalg.norm(center - root) * rng.uniform(1.0, 2.0)

        def project(x: np.ndarray) -> np.ndarray:
            away = x - center
            return center + away * np.minimum(1.0, radius / np.maximum(norm(away), 1e-300))[:, None]

        return project if name == "ball" else lambda x: 2 * project(x) - x
    if name == "box reflection":
        low, high = root - rng.exponential(size=d), root + rng.exponential(size=d)
        return lambda x: 2 * np.clip(x, low, high) - x
    assert name == "fold"
    return lambda x: root + np.abs(x - root)


def nonexpansive(
    pieces: Sequence[str] = PIECES, least: int = 2, most: int = 40, contraction: st.SearchStrategy[float] | None = None
) -> st.SearchStrategy[Nonexpansive]:
    """Compositions of up to four pieces."""
    return st.builds(
        Nonexpansive,
        seed=st.integers(0, 2**32 - 1),
        d=st.integers(1, 6),
        N=st.integers(least, most),
        alpha=st.floats(0.01, 10.0),
        pieces=st.lists(st.sampled_from(pieces), min_size=1, max_size=4).map(tuple),
        contraction=st.just(1.0) if contraction is None else contraction,
    )
