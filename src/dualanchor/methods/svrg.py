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

LONGEST = 256  # steps of an epoch: its samples are about one pass, so larger sums have larger batches
_TRIAL = 16  # steps of a trial of the step size, and of the shortest epoch
_SHORTEST_LAST = 64  # steps of the longest epoch, at least: a mean over fewer turns of a game is no better than x
_FIRST_MOVE = 1e-3  # of the size of x (1 if that is 0): how far the first trial goes
_EXACT, _FIRST_TRIAL, _SECOND_TRIAL, _LAST, _MEAN, _EPOCH = range(6)
"""Stages: a pass at x0, two trials of the step, a pass at the last iterate, at the mean; an epoch of m steps is
_EPOCH + m."""


@dataclass(frozen=True)
class _FullPass(Method):
    """The exact value at x, which stays; a value that is not finite becomes infinite."""

    components: int
    trusted: bool = False  # whether F must be finite at x, as at x0
    step_size: Any = 1.0

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Cost(0, self.components)

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        checking = F.checking
        F.checking = checking and self.trusted  # a candidate may lie where F overflows: that turns it down
        try:
            value = F(s.x, F.full_batch())
        finally:
            F.checking = checking
        xp = arrays.namespace(value)
        s.value = xp.where(xp.isfinite(value), value, 0 * s.value + np.inf)


@dataclass(frozen=True)
class Epoch(Method):
    """Steps with the same batch at z and at the snapshot w; a row that goes too far stays at w with step 0.

    `total` is the sum of the iterates from step `tail` on; `value` is F(w), or an estimate of it.
    """

    batch_size: int
    tail: int = 0
    step_size: Any = 1.0

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Cost(self.batch_size, 2 * self.batch_size)

    @staticmethod
    def begin(x: Array, snapshot: Array, value: Array, step: Array) -> State:
        """The state of an epoch from x, of shape (rows, d), with steps of shape (rows, 1)."""
        sums = dict.fromkeys(("squares", "products", "distances"), arrays.zeros_like(step))
        names = {"x": x, "snapshot": snapshot, "value": value, "step": step}
        moved, size = (arrays.row_squares(one)[:, None] ** 0.5 for one in (x - snapshot, value))
        return State(
            **{name: arrays.copy(value) for name, value in names.items()},
            total=arrays.zeros_like(x),
            reach=2 * step * size + moved,
            **sums,
        )

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        batch, xp = F.draw(self.batch_size), arrays.namespace(s.x)
        change, away = F(s.x, batch) - F(s.snapshot, batch), s.x - s.snapshot
        square = arrays.row_squares(change)[:, None]
        z = s.x - s.step * (s.value + change)
        far = arrays.row_squares(z - s.snapshot)[:, None] ** 0.5
        near = xp.isfinite(square) & (far <= (k + 1) * s.reach)
        seen = near & (s.step > 0)
        s.squares = s.squares + xp.where(seen, square, 0 * s.step)
        s.products = s.products + xp.where(seen, arrays.row_products(change, away)[:, None], 0 * s.step)
        s.distances = s.distances + xp.where(seen, arrays.row_squares(away)[:, None], 0 * s.step)
        s.x, s.step = xp.where(near, z, s.snapshot), xp.where(near, s.step, 0 * s.step)
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
        return max(_SHORTEST_LAST, self.components // self._batch)

    def begin(self, x0: Array) -> State:
        column, vectors = arrays.zeros_like(x0[:, :1]), ("x", "value", "last", "mean")
        first = max(_TRIAL, self.components // self._batch // 4)
        numbers = {"size": np.inf, "first": np.inf, "step": self.step_size or 0.0, "fit": 0.0, "steps": first}
        return State(
            **{name: arrays.copy(x0) for name in vectors}, **{name: column + value for name, value in numbers.items()}
        )

    def stage(self, number: int, memory: State) -> Stage:
        if number in (_EXACT, _LAST, _MEAN):
            x = memory.x if number == _EXACT else memory.last if number == _LAST else memory.mean
            state = State(x=arrays.copy(x), value=arrays.zeros_like(x))
            return Stage(_FullPass(self.components, number == _EXACT), state, 1)
        state = Epoch.begin(memory.x, memory.x, memory.value, memory.step)
        return Stage(Epoch(self._batch), state, number - _EPOCH if number > _EPOCH else _TRIAL)

    def choose(self, number: int, memory: State, s: State, F: Session) -> IntArray:
        xp = arrays.namespace(memory.x)
        if number == _EXACT:
            memory.value, memory.size = s.value, arrays.row_squares(s.value)[:, None] ** 0.5
            memory.first = memory.size
            if self.step_size is None:
                reach = arrays.row_squares(memory.x)[:, None] ** 0.5
                reach = xp.where(reach > 0, reach, reach + 1)
                memory.step = _FIRST_MOVE * reach / (_TRIAL * xp.where(memory.size > 0, memory.size, 0 * reach + 1))
                return self._unless_ended(memory, np.full(len(s.x), _FIRST_TRIAL))
            return self._next_epoch(memory, F)
        if number in (_FIRST_TRIAL, _SECOND_TRIAL):
            trial = step_from(s, memory.step, memory.steps)
            memory.step = trial / 100 if number == _FIRST_TRIAL else trial
            return np.full(len(s.x), _SECOND_TRIAL) if number == _FIRST_TRIAL else self._next_epoch(memory, F)
        if number > _EPOCH:
            memory.last, memory.mean = s.x, s.total / (number - _EPOCH)
            memory.fit = step_from(s, memory.step, number - _EPOCH)
            given_up = s.step == 0
            memory.step = xp.where(given_up, xp.minimum(memory.step / 4, memory.fit), memory.step)
            return np.where(arrays.to_host(given_up)[:, 0], self._next_epoch(memory, F), _LAST)
        size = arrays.row_squares(s.value)[:, None] ** 0.5
        lower = size < memory.size
        memory.x, memory.value = xp.where(lower, s.x, memory.x), xp.where(lower, s.value, memory.value)
        memory.size = xp.where(lower, size, memory.size)
        doubled = xp.minimum(2 * memory.steps, 0 * memory.steps + self._longest)
        if number == _LAST:
            longer = xp.minimum(2 * memory.step, xp.maximum(memory.fit, memory.step))
            memory.step = xp.where(lower, longer, memory.step)
            memory.steps = xp.where(lower, doubled, memory.steps)
            return np.where(arrays.to_host(lower)[:, 0], self._next_epoch(memory, F), _MEAN)
        memory.steps = doubled
        memory.step = xp.where(lower, memory.step, xp.minimum(memory.step / 4, memory.fit))
        return self._next_epoch(memory, F)

    def point(self, number: int, memory: State, s: State) -> Array:
        return memory.x

    def steps_within(self, budget: int) -> int:
        return budget // (3 * self._batch)  # passes are about a third

    def outcome(self, memory: State) -> list[Status]:
        reached = arrays.to_host(memory.size)[:, 0] <= (self.eps or 0.0)
        return [Status.TARGET if one else Status.HORIZON for one in reached]

    def _next_epoch(self, memory: State, F: Session) -> IntArray:
        steps = arrays.to_host(memory.steps)[:, 0].astype(np.int64)
        if self.budget is not None:
            room = (self.budget - per_row(F.evals, len(steps)) - self.components) // (2 * self._batch)
            steps = np.where(room >= _TRIAL, np.minimum(steps, room), steps)
        return self._unless_ended(memory, _EPOCH + steps)

    def _unless_ended(self, memory: State, numbers: IntArray) -> IntArray:
        """The numbers, or END where eps is reached, and where an epoch would not move x any more."""
        size = arrays.to_host(memory.size)[:, 0]
        extent = arrays.to_host(memory.step * memory.steps * memory.size)[:, 0]
        rounding = np.finfo(size.dtype).eps * arrays.row_norms(memory.x)
        return np.where((size > (self.eps or 0.0)) & (extent > rounding) & np.isfinite(size), numbers, END)

    @classmethod
    def defaults(cls, problem: Problem, budget: int | None, given: dict[str, Any]) -> dict[str, Any]:
        L = problem.constants.L
        step = problem.step_size if L is None else 1 / L
        return {**super().defaults(problem, budget, given), "step_size": step, "budget": budget}


def step_from(s: State, used: Array, steps: Any) -> Array:
    """The step that the differences of an epoch with the step `used` suggest for one of so many steps, (rows, 1)."""
    xp, one = arrays.namespace(s.x), 0 * s.step + 1
    moved, changed = s.distances > 0, s.squares > 0
    squares = xp.where(changed, s.squares, one)
    pulled = s.products / (3 * squares)
    turned = (xp.where(moved, s.distances, one) / (steps * squares)) ** 0.5
    found = xp.where(changed, xp.maximum(pulled, turned), 1000 * used)
    return xp.where(moved, found, used / 100)
