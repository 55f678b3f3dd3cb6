"""Batch sizes per round: constant, tapered, growing, or written out.

Wherever a method takes a `batch_size` it takes an int, a Schedule or a list of sizes.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.rowwise import Rowwise


class Schedule(Rowwise, ABC):
    """A rule that gives the batch size of round k, fixed before the run."""

    needs_horizon = False

    @abstractmethod
    def size(self, k: Any, horizon: Any) -> Any:
        """The size of round k; k may be an array of rounds."""


LARGEST = 1 << 50
"""No batch is larger: sums of sizes stay whole numbers of 64 bits."""

BatchSize: TypeAlias = "int | Schedule | Sequence[int]"


@dataclass(frozen=True)
class Constant(Schedule):
    """The same size in every round; what an int stands for."""

    value: Any

    def size(self, k: Any, horizon: Any) -> Any:
        return self.value if isinstance(self.value, int) else self.value + 0 * k


@dataclass(frozen=True)
class Tapered(Schedule):
    r"""Small at first and largest at the end: the sizes that spend samples where Dual-OHM feels them.

    .. math:: B_k = \max\{1, \lceil C / \sqrt{(N-k)(N-k-1)} \rceil\}, \qquad k = 0, \dots, N-2.

    Batch k enters the bound of S-Dual-OHM with the weight :math:`1/((N-k)(N-k-1))`; these sizes are the best
    allocation for it, and bring the number of samples from :math:`O(\epsilon^{-3})` to
    :math:`\tilde O(\epsilon^{-2})`. Not in the paper.

    Parameters
    ----------
    C : float
        Scale; the sizes sum to at most :math:`N - 1 + C (\ln N + 0.02)`.
    multiple : int
        Sizes are rounded up to multiples of this many samples, the number of workers that share a batch.

    Examples
    --------
    >>> from dualanchor import Tapered
    >>> [Tapered(10.0).size(k, 6) for k in range(5)]
    [2, 3, 3, 5, 8]
    """

    C: Any
    multiple: Any = 1
    needs_horizon = True

    def __post_init__(self) -> None:
        _require_positive(self.C, "Tapered: C", "Use a larger C")
        if np.asarray(self.multiple).dtype.kind not in "iu" or np.min(self.multiple) < 1:
            raise ArgumentError("Tapered: multiple must be an int >= 1", self.multiple, "Use multiple=1")

    def __repr__(self) -> str:
        return f"Tapered(C={self.C}" + (")" if np.all(self.multiple == 1) else f", multiple={self.multiple})")

    def size(self, k: Any, horizon: Any) -> Any:
        if isinstance(k, int) and isinstance(horizon, int) and isinstance(self.C, numbers.Real):
            return _tapered(float(self.C), horizon, int(self.multiple))[k]
        return self.multiple * _tapered_sizes(self.C / self.multiple, k, horizon)


def _tapered_sizes(C: Any, k: Any, horizon: Any) -> Any:
    m = np.maximum(np.asarray(horizon - k, dtype=np.float64), 2.0)  # past the last round: its size
    return whole(C / np.sqrt(m * (m - 1.0)))


@lru_cache(maxsize=32)
def _tapered(C: float, horizon: int, multiple: int) -> list[int]:
    sizes: list[int] = (multiple * _tapered_sizes(C / multiple, np.arange(max(1, horizon - 1)), horizon)).tolist()
    return sizes


@dataclass(frozen=True)
class Growing(Schedule):
    r"""Batches that grow with k, as plain S-OHM needs them: :math:`B_k = \lceil c\,(k+1) \rceil` (Proposition 3.4).

    Parameters
    ----------
    c : float
        Rate; accuracy :math:`\epsilon` wants :math:`c = \Theta(\sigma^2/\epsilon^2)`.
    """

    c: Any

    def __post_init__(self) -> None:
        _require_positive(self.c, "Growing: c", "Use a larger c")

    def size(self, k: Any, horizon: Any) -> Any:
        return whole(self.c * (k + 1))


@dataclass(frozen=True)
class Listed(Schedule):
    """Sizes written out, one per round; what a list stands for."""

    sizes: tuple[int, ...]

    def size(self, k: Any, horizon: Any) -> Any:
        if isinstance(k, int):
            if k >= len(self.sizes):
                raise ArgumentError(
                    "A list of batch sizes must have one for each round",
                    f"{len(self.sizes)} sizes in round {k}",
                    "Write out all of them, or use a Schedule",
                )
            return self.sizes[k]
        return np.array(self.sizes)[np.minimum(k, len(self.sizes) - 1)]


@dataclass(frozen=True)
class Stages(Schedule):
    """Schedules one after another: stage i has `horizons[i] - 1` rounds with batches by `batch_sizes[i]`.

    Rounds past the last stage keep its last size.
    """

    horizons: tuple[int, ...]
    batch_sizes: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.horizons or len(self.horizons) != len(self.batch_sizes):
            raise ArgumentError(
                "Stages: there must be as many horizons as batch sizes, and at least one",
                f"{len(self.horizons)} horizons and {len(self.batch_sizes)} batch sizes",
                "Give one of each for every stage",
            )
        for horizon, batch_size in zip(self.horizons, self.batch_sizes, strict=True):
            if not isinstance(horizon, int) or horizon < 2:
                raise ArgumentError("Stages: each horizon must be an int >= 2", horizon, "Leave the stage out")
            as_schedule(batch_size, "Stages", horizon)

    @cached_property
    def starts(self) -> Any:
        """The first round of each stage, and the number of rounds in all."""
        return np.concatenate([[0], np.cumsum(np.array(self.horizons) - 1)])

    def locate(self, k: int) -> tuple[int, int]:
        """The stage of round k and the round within it."""
        i = min(bisect_right(self._starts, k), len(self.horizons)) - 1
        return i, k - self._starts[i]

    @cached_property
    def _starts(self) -> list[int]:
        return self.starts[:-1].tolist()

    @cached_property
    def _schedules(self) -> list[Schedule]:
        both = zip(self.horizons, self.batch_sizes, strict=True)
        return [as_schedule(batch_size, "Stages", horizon) for horizon, batch_size in both]

    def size(self, k: Any, horizon: Any) -> Any:
        if isinstance(k, int):
            i, inner = self.locate(k)
            return self._schedules[i].size(min(inner, self.horizons[i] - 2), self.horizons[i])
        k = np.asarray(k)
        sizes = np.empty(k.shape, dtype=np.int64)
        stage = np.minimum(np.searchsorted(self.starts[1:], k, side="right"), len(self.horizons) - 1)
        for i in np.unique(stage):
            chosen = stage == i
            inner = np.minimum(k[chosen] - self.starts[i], self.horizons[i] - 2)
            sizes[chosen] = self._schedules[i].size(inner, self.horizons[i])
        return sizes


def whole(sizes: Any) -> Any:
    """Sizes rounded up, from 1 to LARGEST; an int for a single one."""
    sizes = np.clip(np.ceil(sizes), 1, LARGEST).astype(np.int64)
    return int(sizes) if sizes.ndim == 0 else sizes


def _require_positive(value: Any, name: str, remedy: str) -> None:
    numbers_given = np.asarray(value)
    if numbers_given.dtype.kind not in "iuf":
        raise ArgumentTypeError(f"{name} must be a number", repr(value), "Use a positive number")
    if not (np.all(numbers_given > 0) and np.all(np.isfinite(numbers_given))):
        end = remedy if np.all(np.isfinite(numbers_given)) else f"Use a finite number for {name[-1]}"
        raise ArgumentError(f"{name} must be positive and finite", value, end)


def as_schedule(batch_size: BatchSize, owner: str, horizon: Any = None, rounds: Any = None) -> Schedule:
    """The schedule that a `batch_size` argument stands for, checked.

    `horizon` is the method's, None for an anytime one; `rounds` how many rounds will be asked for, where known.
    """
    if rounds is None and horizon is not None:
        rounds = np.max(horizon) - 1
    if isinstance(batch_size, Schedule):
        if batch_size.needs_horizon and horizon is None:
            raise ArgumentError(
                f"{owner}: batch_size={batch_size} needs a horizon",
                "horizon=None",
                "Pass horizon=N, or use an int or Growing(c)",
            )
        return batch_size
    if isinstance(batch_size, np.ndarray) and batch_size.ndim == 2:  # the column of a stack
        sizes = np.asarray(batch_size)
    elif isinstance(batch_size, (Sequence, np.ndarray)) and not isinstance(batch_size, str):
        batch_size = batch_size.tolist() if isinstance(batch_size, np.ndarray) else batch_size
        if any(isinstance(size, (Sequence, np.ndarray)) for size in batch_size):
            raise ArgumentTypeError(
                f"{owner}: a list of batch sizes must be flat", batch_size, "Use one size per round"
            )
        sizes = np.array(batch_size)
        if rounds is not None and sizes.size < np.max(rounds):
            raise ArgumentError(
                f"{owner}: a list of batch sizes must have one for each of the {np.max(rounds)} rounds",
                f"{sizes.size} sizes",
                "Write out all of them, or use a Schedule",
            )
    else:
        sizes = np.array(batch_size)
    if not np.issubdtype(sizes.dtype, np.integer):
        raise ArgumentTypeError(
            f"{owner}: batch_size must be an int, a Schedule or a list of ints",
            repr(batch_size),
            "Use batch_size=1, Tapered(C), Growing(c) or [1, 2, 4]",
        )
    if sizes.size == 0 or sizes.min() < 1:
        raise ArgumentError(f"{owner}: batch_size must be at least 1", batch_size, "Use batch_size=1 or larger")
    if isinstance(batch_size, np.ndarray):
        return Constant(batch_size)
    if isinstance(batch_size, Sequence):
        return Listed(tuple(int(size) for size in sizes))
    return Constant(int(batch_size))
