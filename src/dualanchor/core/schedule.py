"""Batch sizes per round. A `batch_size` is an int, a Schedule, or a list with one size per round."""

import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, cast

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.rowwise import Rowwise


class Schedule(Rowwise, ABC):
    """A rule for the batch size of round k, fixed before the run."""

    needs_horizon = False

    @abstractmethod
    def size(self, k: Any, horizon: Any) -> Any:
        """The batch size of round k, or of an array k of rounds."""


LARGEST = 1 << 50  # the largest batch size, so that sums of sizes fit 64 bits
BatchSize: TypeAlias = "int | Schedule | Sequence[int]"


@dataclass(frozen=True)
class Constant(Schedule):
    """The same size in every round: what an int stands for."""

    value: Any

    def size(self, k: Any, horizon: Any) -> Any:
        return self.value if isinstance(self.value, int) else self.value + 0 * k


@dataclass(frozen=True)
class Tapered(Schedule):
    r"""Small at first and largest at the end, where S-Dual-OHM is most sensitive to noise.

    .. math:: B_k = \max\{1, \lceil C \sqrt{\kappa_m/(m(m-1))} \rceil\}, \qquad
        m = N - k, \quad \kappa_m = \min\{1, \tau(2m-1)/6\}, \quad k = 0, \dots, N-2.

    Batch k enters the bound of S-Dual-OHM with weight :math:`\kappa_m/(m(m-1))`, and these sizes minimise the bound:
    :math:`\tilde O(\epsilon^{-2})` samples instead of :math:`O(\epsilon^{-3})`. Not in the paper.

    Parameters
    ----------
    C : float, scale; the sizes sum to at most N - 1 + C (ln N + 0.02)
    multiple : int, sizes are rounded up to multiples of it; use the number of workers that share a batch
    tau : float, step size times Lipschitz constant; at 2 and above, and by default, all :math:`\kappa_m` are 1

    Examples
    --------
    >>> from dualanchor import Tapered
    >>> [Tapered(10.0).size(k, 6) for k in range(5)]
    [2, 3, 3, 5, 8]
    """

    C: Any
    multiple: Any = 1
    tau: Any = 2.0
    needs_horizon = True

    def __post_init__(self) -> None:
        self.require_positive("C", "tau")
        self.require_counts("multiple")

    def __repr__(self) -> str:
        defaults = {"multiple": 1, "tau": 2.0}
        values = {name: getattr(self, name) for name in defaults}
        changed = [f", {name}={values[name]}" for name in defaults if np.any(values[name] != defaults[name])]
        return f"Tapered(C={self.C}{''.join(changed)})"

    def size(self, k: Any, horizon: Any) -> Any:
        has_columns = not all(isinstance(value, numbers.Real) for value in (self.C, self.multiple, self.tau))
        if isinstance(k, int) and isinstance(horizon, int) and not has_columns:
            sizes = _tapered_sizes(float(self.C), horizon, int(self.multiple), float(self.tau))
            return sizes[min(k, len(sizes) - 1)]
        m = np.maximum(np.asarray(horizon - k, dtype=np.float64), 2.0)  # after the last round, the size of that round
        damping = np.minimum(1.0, self.tau * (2 * m - 1) / 6)
        return self.multiple * whole(self.C / self.multiple / np.sqrt(m * (m - 1.0) / damping))


@lru_cache(maxsize=32)
def _tapered_sizes(C: float, horizon: int, multiple: int, tau: float) -> Any:
    """The sizes of all rounds, as ints."""
    return Tapered(C, multiple, tau).size(np.arange(max(1, horizon - 1)), horizon).tolist()


@dataclass(frozen=True)
class PowerTapered(Schedule):
    r"""Largest at the end, as `Tapered`, with any power: :math:`B_k = \max\{1, \lceil C/(N-k)^p \rceil\}`.

    Parameters
    ----------
    C : float, scale
    p : float, power
    """

    C: Any
    p: Any
    needs_horizon = True

    def __post_init__(self) -> None:
        self.require_positive("C", "p")

    def size(self, k: Any, horizon: Any) -> Any:
        return whole(self.C / np.maximum(np.asarray(horizon - k, dtype=np.float64), 2.0) ** self.p)


@dataclass(frozen=True)
class Growing(Schedule):
    r"""Batches that grow with k, as plain S-OHM needs them: :math:`B_k = \lceil c\,(k+1) \rceil` (Proposition 3.4).

    Parameters
    ----------
    c : float, rate; accuracy ε wants c = Θ(σ²/ε²)

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> da.Growing(0.5).size(np.arange(5), 6)
    array([1, 1, 2, 2, 3])
    """

    c: Any

    def __post_init__(self) -> None:
        self.require_positive("c")

    def size(self, k: Any, horizon: Any) -> Any:
        return whole(self.c * (k + 1))


@dataclass(frozen=True)
class Geometric(Schedule):
    r"""Batches that grow by a factor in each round: :math:`B_k = \lceil c\,q^k \rceil`.

    Parameters
    ----------
    c : float, scale
    q : float, factor
    multiple : int, sizes are rounded up to multiples of it
    """

    c: Any
    q: Any
    multiple: Any = 1

    def __post_init__(self) -> None:
        self.require_positive("c", "q")
        self.require_counts("multiple")

    def size(self, k: Any, horizon: Any) -> Any:
        return self.multiple * whole(self.c / self.multiple * np.power(1.0 * self.q, k))


@dataclass(frozen=True)
class Paired(Schedule):
    """Sizes of the two batches of an extragradient round: `ahead` for the extrapolation, `update` for the step."""

    ahead: Any
    update: Any

    def __post_init__(self) -> None:
        for name in ("ahead", "update"):
            object.__setattr__(self, name, as_schedule(getattr(self, name), f"Paired: {name}"))

    def size(self, k: Any, horizon: Any) -> Any:
        """The samples of both batches of the round."""
        return self.ahead.size(k, horizon) + self.update.size(k, horizon)


@dataclass(frozen=True)
class Listed(Schedule):
    """One size per round: what a list stands for."""

    sizes: tuple[int, ...]

    def size(self, k: Any, horizon: Any) -> Any:
        if not isinstance(k, int):
            return np.array(self.sizes)[np.minimum(k, len(self.sizes) - 1)]
        if k >= len(self.sizes):
            rule = "A list of batch sizes must have one for each round"
            raise ArgumentError(rule, f"{len(self.sizes)} sizes in round {k}", "Write out all, or use a Schedule")
        return self.sizes[k]


@dataclass(frozen=True)
class Stages(Schedule):
    """Schedules one after another: stage i has `horizons[i] - 1` rounds with sizes by `batch_sizes[i]`."""

    horizons: tuple[int, ...]
    batch_sizes: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.horizons or len(self.horizons) != len(self.batch_sizes):
            rule = "Stages: there must be as many horizons as batch sizes, and at least one"
            received = f"{len(self.horizons)} horizons and {len(self.batch_sizes)} batch sizes"
            raise ArgumentError(rule, received, "Give one of each for every stage")
        for horizon, batch_size in zip(self.horizons, self.batch_sizes, strict=True):
            if not isinstance(horizon, int) or horizon < 2:
                raise ArgumentError("Stages: each horizon must be an int >= 2", horizon, "Leave the stage out")
            as_schedule(batch_size, "Stages", horizon)

    @cached_property
    def _sizes(self) -> Any:
        stages = [(N, as_schedule(size, "Stages", N)) for N, size in zip(self.horizons, self.batch_sizes, strict=True)]
        return np.concatenate([np.broadcast_to(stage.size(np.arange(N - 1), N), (N - 1,)) for N, stage in stages])

    def size(self, k: Any, horizon: Any) -> Any:
        sizes = self._sizes[np.minimum(k, self._sizes.size - 1)]  # after the last round, the size of that round
        return int(sizes) if isinstance(k, int) else sizes


def whole(sizes: Any) -> Any:
    """Sizes rounded up to whole numbers from 1 to LARGEST; an int for a single one."""
    sizes = np.clip(np.ceil(sizes), 1, LARGEST).astype(np.int64)
    return int(sizes) if sizes.ndim == 0 else sizes


def as_schedule(batch_size: BatchSize, owner: str, horizon: Any = None, rounds: Any = None) -> Schedule:
    """The schedule that a `batch_size` stands for, checked for a horizon (None: without) and a number of rounds."""
    if isinstance(batch_size, Schedule):
        if batch_size.needs_horizon and horizon is None:
            remedy = "Pass horizon=N, or use an int or Growing(c)"
            raise ArgumentError(f"{owner}: batch_size={batch_size} needs a horizon", "horizon=None", remedy)
        return batch_size
    is_column = isinstance(batch_size, np.ndarray) and batch_size.ndim == 2  # one size per row of a stack
    is_list = isinstance(batch_size, (Sequence, np.ndarray)) and not isinstance(batch_size, str) and not is_column
    if is_list and any(np.ndim(size) for size in cast(Sequence[Any], batch_size)):
        raise ArgumentTypeError(f"{owner}: a list of batch sizes must be flat", batch_size, "Use one size per round")
    sizes = np.asarray(batch_size)
    if isinstance(batch_size, int) and batch_size > check.LARGEST_COUNT:  # NumPy has no such integer
        rule = f"{owner}: batch_size must be at most {check.LARGEST_COUNT}"
        raise ArgumentError(rule, batch_size, "Use a smaller one, or a larger eps")
    rounds = np.max(horizon) - 1 if rounds is None and horizon is not None else rounds
    if is_list and rounds is not None and sizes.size < np.max(rounds):
        rule = f"{owner}: a list of batch sizes must have one for each of the {np.max(rounds)} rounds"
        raise ArgumentError(rule, f"{sizes.size} sizes", "Write out all of them, or use a Schedule")
    if sizes.dtype.kind not in "iu":
        rule = f"{owner}: batch_size must be an int, a Schedule or a list of ints"
        raise ArgumentTypeError(rule, repr(batch_size), "Use batch_size=1, Tapered(C), Growing(c) or [1, 2, 4]")
    if sizes.size == 0 or sizes.min() < 1:
        raise ArgumentError(f"{owner}: batch_size must be at least 1", batch_size, "Use batch_size=1 or larger")
    if is_list:
        return Listed(tuple(sizes.tolist()))
    return Constant(batch_size if is_column else int(sizes))
