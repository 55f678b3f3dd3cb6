"""Many steps of many rows in one compiled call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numba import njit, types

from dualanchor.core.arrays import row_squares
from dualanchor.core.method import Method, State
from dualanchor.core.oracle import Recipe, Session
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray
from dualanchor.fast import CHECKED
from dualanchor.fast.kinds import LOOK, OPERATOR, STEP, Steps, given, pointer
from dualanchor.fast.operators import OPERATORS
from dualanchor.fast.steps import STEPS

_LONGEST = 1 << 17  # coordinates of a row; longer ones are stepped one step at a time
_NOISE = 1 << 15  # numbers of noise that one replication reads in one call: a part of the cache
_PICKS = 1 << 18  # indices that one replication reads in one call, at most

_F8, _I8 = types.float64, types.int64


@njit(types.boolean(_F8[::1]), cache=True)
def _bounded(x):  # type: ignore[no-untyped-def]
    """Whether the numbers are finite and can be squared."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * x[i]
    return np.isfinite(total)


@njit(types.void(_F8[::1], _F8[::1]), cache=True)
def _copy(x, to):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        to[i] = x[i]


@njit(
    types.void(
        *(types.FunctionType(kind) for kind in (OPERATOR, STEP, LOOK, STEP)),
        types.boolean,
        given(_I8, 1),
        types.boolean,
        _F8[:, :, ::1],
        given(_F8, 3),
        given(_I8, 1),
        _F8[::1],
        given(_F8, 3),
        given(_I8, 1),
        given(types.boolean, 2),
        given(_F8, 3),
        given(_F8, 2),
        given(_I8, 2),
        given(_I8, 2),
        given(_I8, 1),
        given(_I8, 1),
        given(_I8, 1),
        _F8[:, :, ::1],
        _I8[::1],
        _F8[:, ::1],
        _F8[::1],
    ),
    cache=True,
)
def _run(  # type: ignore[no-untyped-def]
    operator, one, look, two, same, order, careful, s, data, which, constants,
    c, alike, heads, noise, scale, picks, sizes, starts, slots, shown, points, left, G, point,
):  # fmt: skip
    """Row after row, so that each stays in the cache; a careful one ends at the step at which it leaves.

    Four functions: the operator, the step after one evaluation, the second point, the step after two. Then whether both
    evaluations use one batch; the rows in turn; the state (rows, fields, d); the operator's data, which of them each
    row has, and constants; for each step the coefficients of each configuration, and which one a row is `alike`; coins;
    noise by (draw, slot), its scale; indices by slot, batch sizes, where a row's indices begin; each row's slot; where
    iterates are kept (or -1); these; after how many steps a row left; and room for values and the second point.
    """
    for i in range(order.size):
        r = order[i]
        state, mine, slot, start, draw = s[r], data[which[r]], slots[r], starts[r], 0
        for k in range(heads.shape[0]):
            size, numbers = sizes[k, r], c[k, alike[r]]
            constants[0] = scale[k, r]
            operator(state[0], mine, constants, noise[draw, slot], picks[slot, start : start + size], G[0])
            if heads[k, r]:
                one(numbers, state, G)
            else:
                look(numbers, state, G, point)
                if not same:
                    start, draw = start + size, draw + 1
                operator(point, mine, constants, noise[draw, slot], picks[slot, start : start + size], G[1])
                two(numbers, state, G)
            start, draw = start + size, draw + 1
            if shown[k] >= 0:
                _copy(state[0], points[shown[k], r])
            if careful and not _bounded(state[0]):
                left[r] = k + 1
                break


class Stretch:
    """A method's compiled step with an oracle's compiled operator."""

    def __init__(self, steps: Steps, operator: Any, method: Method, rows: int) -> None:
        self._steps = steps
        kinds = ((operator, OPERATOR), (steps.one, STEP), (steps.look, LOOK), (steps.two, STEP))
        self._functions = [pointer(function, kind) for function, kind in kinds]
        # Replications of a configuration have the same coefficients, which are worked out once for all of them.
        each = [np.broadcast_to(np.asarray(getattr(method, name)).ravel(), (rows,)) for name in steps.parameters]
        distinct, self._alike = _distinct(each, rows)
        self._parameters = [values[distinct] for values in each]

    @classmethod
    def of(cls, method: Method, state: State, recipe: Recipe) -> Self | None:
        """The stretch for a method's rows; None if a part of it has no compiled form."""
        steps, operator = _steps_of(method), OPERATORS.get(recipe.operator)
        if steps is None or operator is None or list(vars(state)) != steps.fields:
            return None
        if any(value.dtype != np.float64 for value in vars(state).values()) or state.x.shape[1] > _LONGEST:
            return None
        if getattr(method, "estimator", None) is not None:
            return None
        if method.probability(0) is not None and not steps.same:
            return None  # rows whose coins differ would read different numbers of samples
        return cls(steps, operator, method, len(state.x))

    def advance(
        self, method: Method, state: State, session: Session, ks: range, coins: Array | None, asked: Sequence[int] = ()
    ) -> tuple[Array, IntArray] | None:
        """Take the steps and count them, each row as long as it is finite.

        Returns the iterates after the numbers of steps asked for, (numbers, rows, d), where a row has not left by
        then, and after how many steps each row left, 0 if it did not. None, with nothing done, if just these steps have
        no compiled form.
        """
        steps, recipe, streams = self._steps, session.recipe, session.streams
        assert recipe is not None
        count, rows = len(ks), len(state.x)
        cost = method.cost(np.arange(ks.start, ks.stop), state, coins)
        heads = _over_steps(steps.alone if coins is None else coins, count, rows)
        sizes = _over_steps(cost.draws, count, rows) // steps.draws
        samples = (_Noise if recipe.components is None else _Picks)(recipe, sizes, steps.draws, streams)
        if not samples.possible:
            return None
        s = _together(state)
        points, left = np.empty((len(asked), *state.x.shape)), np.zeros(rows, np.int64)
        shown = np.full(count, -1)
        shown[[k - 1 for k in asked]] = np.arange(len(asked))
        constants, work = np.array([0.0, *recipe.constants]), (np.empty((2, s.shape[2])), np.empty(s.shape[2]))

        def walk(first: int, last: int, order: IntArray, careful: bool) -> None:
            """Steps first .. last - 1 of these rows, as many in one call as there is noise at hand."""
            c, begin = self._coefficients(range(ks[first], ks[last - 1] + 1)), first
            while first < last and order.size:
                width, noise, scale, picks, starts = samples.read(first, last)
                part = slice(first, first + width)
                _run(
                    *self._functions, steps.same, order, careful, s, recipe.data, recipe.which, constants,
                    c[first - begin : first - begin + width], self._alike, heads[part], noise, scale, picks,
                    sizes[part], starts, streams.slots(), shown[part], points, left, *work,
                )  # fmt: skip
                if careful:
                    gone = left[order] > 0
                    left[order[gone]] += first
                    order = order[~gone]
                first += width

        order = np.argsort(streams.slots(), kind="stable")  # rows of one replication share its noise
        checked = [*range(CHECKED - ks.start % CHECKED, count, CHECKED), count]
        for first, last in pairwise([0, *checked]):
            origin, position = s.copy(), streams.position
            walk(first, last, order, False)
            bounded = np.isfinite(row_squares(state.x[order]))
            if not bounded.all():
                gone, order, after = order[~bounded], order[bounded], streams.position
                s[gone], streams.position = origin[gone], position
                walk(first, last, gone, True)
                streams.position = after
        session.count(_total(cost.draws, count), _total(cost.evals, count))
        return points, left

    def _coefficients(self, ks: range) -> Array:
        """The numbers of these steps, (steps, configurations, numbers)."""
        k = np.arange(ks.start, ks.stop)[:, None]
        c = np.empty((len(ks), max(map(len, self._parameters), default=1), self._steps.size))
        for j, values in enumerate(self._steps.coefficients(k, *self._parameters)):
            c[:, :, j] = values
        return c


class _Noise:
    """Vectors of additive noise for a stretch: one for each batch, scaled by its size."""

    def __init__(self, recipe: Recipe, sizes: IntArray, draws: int, streams: Streams) -> None:
        self._streams, self._draws = streams, draws
        self._scale = recipe.sigma / np.sqrt(streams.dimension * sizes)
        self._none = np.zeros((streams.slots().max() + 1, 0), np.int64), np.zeros(sizes.shape[1], np.int64)
        self.possible = isinstance(streams.position, int)
        self._width = max(1, _NOISE // (streams.dimension * draws))

    def read(self, first: int, last: int) -> tuple[Any, ...]:
        """For how many of these steps this is, noise, its scales, and no indices."""
        width = min(last - first, self._width, max(1, self._streams.together() // self._draws))
        return width, self._streams.vectors(self._draws * width), self._scale[first : first + width], *self._none


class _Picks:
    """Indices of components for a stretch, each row reading from its own position."""

    def __init__(self, recipe: Recipe, sizes: IntArray, draws: int, streams: Streams) -> None:
        assert recipe.components is not None
        self._streams, self._sizes, self._draws, self._n = streams, sizes, draws, recipe.components
        self._none = np.zeros((2 * len(sizes), streams.slots().max() + 1, 1)), np.zeros(sizes.shape)
        self.possible = bool(sizes.max() <= recipe.components)  # a larger batch is drawn in another way
        self._width = max(1, _PICKS // (draws * int(sizes.max())))

    def read(self, first: int, last: int) -> tuple[Any, ...]:
        """For how many of these steps this is, no noise, and the indices."""
        width = min(last - first, self._width)
        noise, scale = self._none
        picks, starts = self._streams.picks(self._n, self._draws * self._sizes[first : first + width].sum(axis=0))
        return width, noise, scale[first : first + width], picks, starts


def _distinct(columns: list[Array], rows: int) -> tuple[IntArray, IntArray]:
    """Which rows have values that no row before has, and for each row which of these it is like."""
    if not columns:
        return np.zeros(1, np.int64), np.zeros(rows, np.int64)
    _, first, alike = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return first, np.ascontiguousarray(alike.reshape(-1), dtype=np.int64)


def _over_steps(value: Any, count: int, rows: int) -> Array:
    """One value for all, one per step, or (rows, steps), as (steps, rows)."""
    values = np.asarray(value)
    values = values.T if values.ndim == 2 else values[..., None]
    return np.ascontiguousarray(np.broadcast_to(values, (count, rows)))


def _total(value: Any, count: int) -> Any:
    """The sum over steps, for all rows or per row."""
    if isinstance(value, int):
        return value * count
    total = np.broadcast_to(value, (*np.shape(value)[:-1], count)).sum(axis=-1)
    return int(total) if total.ndim == 0 else total


def _steps_of(method: Method) -> Steps | None:
    """A method's own compiled step; a subclass that does not say so under an id of its own has none."""
    return STEPS.get(type(method).id) if "id" in vars(type(method)) else None


def update_of(method: Method, state: State) -> Callable[[int, State, Array], None] | None:
    """A method's elementwise update as one pass over each row, or None if it has no compiled form."""
    steps = _steps_of(method)
    if steps is None or steps.update is None or list(vars(state)) != steps.fields:
        return None
    if any(value.dtype not in (np.float64, np.float32) for value in vars(state).values()):
        return None
    parameters = [np.ravel(getattr(method, name)) for name in steps.parameters]

    def update(k: int, s: State, G: Array) -> None:
        c = np.empty((len(G), steps.size))
        for j, values in enumerate(steps.coefficients(k, *parameters)):
            c[:, j] = values
        fields = [getattr(s, name) for name in steps.used]
        for row in range(len(G)):
            steps.update(c[row], *(value[row] for value in fields), G[row])

    return update


def _together(state: State) -> Array:
    """The state as one array, (rows, fields, d); its fields become views of that."""
    fields = vars(state)
    s = state.x.base
    if s is None or s.ndim != 3 or s.shape[1] != len(fields) or any(value.base is not s for value in fields.values()):
        s = np.stack(list(fields.values()), axis=1)
        for j, name in enumerate(fields):
            setattr(state, name, s[:, j])
    return s
