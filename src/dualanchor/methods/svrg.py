"""SVRG: variance-reduced epochs for finite sums, with exact residuals that find the step."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.history import Status
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.problem import Problem
from dualanchor.core.session import Session
from dualanchor.core.staged import END, Stage, Staged
from dualanchor.core.streams import per_row
from dualanchor.core.types import Array, IntArray
from dualanchor.methods._bases import OfFiniteSum

LONGEST = 256  # steps of an epoch: it takes about n samples, so larger sums have larger batches
_TRIAL = 16  # steps of a trial of the step size, and of the shortest epoch
_MIN_LONGEST = 64  # steps of the longest epoch, at least: the mean over fewer turns of a game is no better than x
_FIRST_MOVE = 1e-3  # length of the first trial, relative to the norm of x (absolute if that is 0)
_PASS_AT_START, _FIRST_TRIAL, _SECOND_TRIAL, _PASS_AT_LAST, _PASS_AT_MEAN, _EPOCH = range(6)
"""Stage numbers: full passes at x0, at the last iterate and at the mean of an epoch, and two trials of the step size;
an epoch of m steps is _EPOCH + m."""


@dataclass(frozen=True)
class _FullPass(Method):
    """One step that computes F(x) exactly and leaves x as it is; a value that is not finite becomes infinite."""

    components: int
    must_be_finite: bool = False  # as at x0; a candidate may lie where F overflows, and is then rejected
    step_size: Any = 1.0

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Cost(0, self.components)

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        checking = F.checking
        F.checking = checking and self.must_be_finite
        try:
            value = F(s.x, F.full_batch())
        finally:
            F.checking = checking
        xp = arrays.namespace(value)
        s.value = xp.where(xp.isfinite(value), value, 0 * s.value + np.inf)


@dataclass(frozen=True)
class Epoch(Method):
    """Variance-reduced steps with the same batch at z and at the snapshot w; a row that moves too far returns to w.

    The state has `value`, F(w) or an estimate of it, and `step`, set to 0 for rows that have returned; `total`, the sum
    of the iterates from step `tail` on; and the sums over all steps, with D the difference of both batch means, of
    |D|^2 (`squares`), <D, z - w> (`products`) and |z - w|^2 (`distances`).
    """

    batch_size: int
    tail: int = 0
    step_size: Any = 1.0

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Cost(self.batch_size, 2 * self.batch_size)

    @staticmethod
    def begin(x: Array, snapshot: Array, value: Array, step: Array) -> State:
        """The state of an epoch from x, of shape (rows, d), with steps of shape (rows, 1)."""
        given = {"x": x, "snapshot": snapshot, "value": value, "step": step}
        return State(
            **{name: arrays.copy(array) for name, array in given.items()},
            total=arrays.zeros_like(x),
            reach=2 * step * _norms(value) + _norms(x - snapshot),
            **dict.fromkeys(("squares", "products", "distances"), arrays.zeros_like(step)),
        )

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        batch, xp = F.draw(self.batch_size), arrays.namespace(s.x)
        difference, away = F(s.x, batch) - F(s.snapshot, batch), s.x - s.snapshot
        square = arrays.row_squares(difference)[:, None]
        z = s.x - s.step * (s.value + difference)
        near = xp.isfinite(square) & (_norms(z - s.snapshot) <= (k + 1) * s.reach)
        counted, zero = near & (s.step > 0), 0 * s.step
        s.squares = s.squares + xp.where(counted, square, zero)
        s.products = s.products + xp.where(counted, arrays.row_products(difference, away)[:, None], zero)
        s.distances = s.distances + xp.where(counted, arrays.row_squares(away)[:, None], zero)
        s.x, s.step = xp.where(near, z, s.snapshot), xp.where(near, s.step, zero)
        s.total = s.total + s.x if k >= self.tail else s.total


@dataclass(frozen=True)
class SVRG(OfFiniteSum, Staged):
    r"""Variance-reduced epochs for finite sums of n monotone operators; no constant is needed.

    An epoch from the snapshot w steps with batches whose noise vanishes as z and w come near to a root. A full pass
    then gives the exact residual: where it fell, the new point is the next snapshot, so x is never worse than x0. If
    it did not fall at the last iterate, the mean of the epoch is tried, as games need it. Anytime. Johnson and Zhang
    2013; for monotone operators Palaniappan and Bach 2016; ours: how steps and lengths are found.

    .. math:: z_{j+1} = z_j - a\,(F(w) + F_B(z_j) - F_B(w)), \quad z_0 = w, \quad j < m

    1. Two trials of 16 short steps give :math:`a = 1/\min\{3 \sum\|\Delta_j\|^2 / \sum\langle\Delta_j, z_j - w\rangle,
       \sqrt{m \sum\|\Delta_j\|^2 / \sum\|z_j - w\|^2}\}` with :math:`\Delta_j = F_B(z_j) - F_B(w)`: a third of the
       inverse of an expected cocoercivity constant or, where F turns, :math:`1/(M\sqrt m)`. Not with a step size given.
    2. Epochs begin with about n/4 samples. After one that lowered the residual, m doubles, up to n samples, and a grows
       to what item 1 gives for this epoch, at most to 2a; a stays where only the mean was lower. Else a becomes a/4 or
       what item 1 gives, if less, and m doubles.
    3. A row that moves further than :math:`2a(j+1)\|F(w)\|` waits for the end of the epoch: no pass, a becomes a/4.

    A step takes 2B evaluations, an epoch ends with one pass or two.

    Guarantee: none known for these steps; the residual at x is exact, and never above that at x0. With constant steps
    well below 1/L and mu > 0 such epochs converge linearly (both sources).

    Parameters
    ----------
    step_size : float, optional, the first a; 1/L or the problem's own by name; found by trials if None
    components : int, n
    small_batch : int, optional, B; None stands for :math:`\lceil n/256 \rceil`
    eps : float, optional; the run ends at an exact residual of at most eps
    budget : int, optional, evaluations in all, as by name: the last epoch is shortened so that a pass can follow it

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.finite_sum_cocoercive(components=25, dimension=10, rank=9)
    >>> bool(da.solve(problem, "svrg", budget=5000).residual < 1e-6)
    True
    """

    step_size: Any = None
    components: Any = None
    small_batch: Any = None
    eps: Any = None
    budget: Any = None

    id = "svrg"
    title = "SVRG, variance-reduced epochs with exact residuals, for finite sums"
    citation = "svrg"
    positive: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive(*(name for name in ("step_size", "eps") if getattr(self, name) is not None))
        self.require_counts(*(name for name in ("small_batch", "budget") if getattr(self, name) is not None))

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"replay", "full-pass"})

    @property
    def _batch(self) -> int:
        return int(self.small_batch or -(-self.components // LONGEST))

    @property
    def _longest(self) -> int:
        return max(_MIN_LONGEST, self.components // self._batch)

    def begin(self, x0: Array) -> State:
        column = arrays.zeros_like(x0[:, :1])
        steps = max(_TRIAL, self.components // self._batch // 4)
        numbers = {"residual": np.inf, "start_residual": np.inf, "step": self.step_size or 0.0, "fit": 0.0}
        return State(
            **{name: arrays.copy(x0) for name in ("x", "value", "last", "mean")},
            **{name: column + value for name, value in (numbers | {"steps": steps}).items()},
        )

    def stage(self, number: int, memory: State) -> Stage:
        points = {_PASS_AT_START: memory.x, _PASS_AT_LAST: memory.last, _PASS_AT_MEAN: memory.mean}
        if (x := points.get(number)) is not None:
            state = State(x=arrays.copy(x), value=arrays.zeros_like(x))
            return Stage(_FullPass(self.components, number == _PASS_AT_START), state, 1)
        state = Epoch.begin(memory.x, memory.x, memory.value, memory.step)
        return Stage(Epoch(self._batch), state, number - _EPOCH if number > _EPOCH else _TRIAL)

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        if number == _PASS_AT_START:
            return self._after_pass_at_start(memory, s, F)
        if number in (_FIRST_TRIAL, _SECOND_TRIAL):
            step = step_from(s, memory.step, memory.steps)
            memory.step = step / 100 if number == _FIRST_TRIAL else step
            return np.full(len(s.x), _SECOND_TRIAL) if number == _FIRST_TRIAL else self._next_epoch(memory, F)
        if number > _EPOCH:
            return self._after_epoch(number - _EPOCH, memory, s, F)
        return self._after_pass(number, memory, s, F)

    def _after_pass_at_start(self, memory: State, s: State, F: Session) -> IntArray:
        memory.value, memory.residual = s.value, _norms(s.value)
        memory.start_residual = memory.residual
        if self.step_size is not None:
            return self._next_epoch(memory, F)
        xp, norm = arrays.namespace(memory.x), _norms(memory.x)
        norm = xp.where(norm > 0, norm, norm + 1)
        memory.step = _FIRST_MOVE * norm / (_TRIAL * xp.where(memory.residual > 0, memory.residual, 0 * norm + 1))
        return self._unless_ended(memory, np.full(len(s.x), _FIRST_TRIAL))

    def _after_epoch(self, steps: int, memory: State, s: State, F: Session) -> IntArray:
        xp = arrays.namespace(memory.x)
        memory.last, memory.mean = s.x, s.total / steps
        memory.fit = step_from(s, memory.step, steps)
        returned = s.step == 0
        memory.step = xp.where(returned, xp.minimum(memory.step / 4, memory.fit), memory.step)
        return np.where(arrays.to_host(returned)[:, 0], self._next_epoch(memory, F), _PASS_AT_LAST)

    def _after_pass(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        """Take the last iterate, or else the mean of the epoch, as the next snapshot if its residual is lower."""
        xp, residual = arrays.namespace(memory.x), _norms(s.value)
        lower = residual < memory.residual
        memory.x, memory.value = xp.where(lower, s.x, memory.x), xp.where(lower, s.value, memory.value)
        memory.residual = xp.where(lower, residual, memory.residual)
        doubled = xp.minimum(2 * memory.steps, 0 * memory.steps + self._longest)
        if number == _PASS_AT_LAST:
            longer = xp.minimum(2 * memory.step, xp.maximum(memory.fit, memory.step))
            memory.step = xp.where(lower, longer, memory.step)
            memory.steps = xp.where(lower, doubled, memory.steps)
            return np.where(arrays.to_host(lower)[:, 0], self._next_epoch(memory, F), _PASS_AT_MEAN)
        memory.steps = doubled
        memory.step = xp.where(lower, memory.step, xp.minimum(memory.step / 4, memory.fit))
        return self._next_epoch(memory, F)

    def point(self, number: int, memory: State, s: State) -> Array:
        return memory.x

    def steps_within(self, budget: int) -> int:
        return budget // (3 * self._batch)  # passes are about a third

    def outcome(self, memory: State) -> list[Status]:
        reached = arrays.to_host(memory.residual)[:, 0] <= (self.eps or 0.0)
        return [Status.TARGET if target else Status.HORIZON for target in reached]

    def _next_epoch(self, memory: State, F: Session) -> IntArray:
        """The number of the next epoch, shortened if the budget would not pay for a pass after it."""
        steps = arrays.to_host(memory.steps)[:, 0].astype(np.int64)
        if self.budget is not None:
            payable = (self.budget - per_row(F.evals, len(steps)) - self.components) // (2 * self._batch)
            steps = np.where(payable >= _TRIAL, np.minimum(steps, payable), steps)
        return self._unless_ended(memory, _EPOCH + steps)

    def _unless_ended(self, memory: State, numbers: IntArray) -> IntArray:
        """The numbers, or END where eps is reached or an epoch would not move x any more."""
        residual = arrays.to_host(memory.residual)[:, 0]
        extent = arrays.to_host(memory.step * memory.steps * memory.residual)[:, 0]
        rounding = np.finfo(residual.dtype).eps * arrays.row_norms(memory.x)
        moves = (extent > rounding) & np.isfinite(residual)
        return np.where((residual > (self.eps or 0.0)) & moves, numbers, END)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        L = problem.constants.L
        step = problem.step_size if L is None else 1 / L
        return {**super().defaults(problem, budget, given), "step_size": step, "budget": budget}


def step_from(s: State, used: Array, steps: Any) -> Array:
    """The step (rows, 1) that the sums of an epoch with the step `used` suggest for an epoch of `steps` steps."""
    xp, one = arrays.namespace(s.x), 0 * s.step + 1
    moved, changed = s.distances > 0, s.squares > 0
    squares = xp.where(changed, s.squares, one)
    cocoercive = s.products / (3 * squares)
    turning = (xp.where(moved, s.distances, one) / (steps * squares)) ** 0.5
    step = xp.where(changed, xp.maximum(cocoercive, turning), 1000 * used)
    return xp.where(moved, step, used / 100)


def _norms(x: Array) -> Array:
    """The norms of the rows, (rows, 1)."""
    return arrays.row_squares(x)[:, None] ** 0.5
