"""Many steps of many rows in one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numba import njit, types

from dualanchor.core.method import Method, State
from dualanchor.core.oracle import Recipe, Session
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray
from dualanchor.fast.kinds import LOOK, OPERATOR, STEP, Steps, given, pointer
from dualanchor.fast.operators import OPERATORS
from dualanchor.fast.steps import STEPS

_LONGEST = 1 << 17  # coordinates of a row; longer ones are stepped one step at a time
_NOISE = 1 << 15  # numbers of noise that one replication reads in one call: a part of the cache
_PICKS = 1 << 18  # indices that one replication reads in one call, at most

_F8, _I8 = types.float64, types.int64


@njit(
    types.void(
        *(types.FunctionType(kind) for kind in (OPERATOR, STEP, LOOK, STEP)),
        given(types.boolean, 2),
        types.boolean,
        given(_F8, 3),
        _F8[:, :, ::1],
        given(_F8, 3),
        given(_I8, 1),
        _F8[::1],
        given(_F8, 3),
        given(_F8, 2),
        given(_I8, 2),
        given(_I8, 2),
        given(_I8, 1),
        given(_I8, 1),
    ),
    cache=True,
)
def _run(  # type: ignore[no-untyped-def]
    operator, one, look, two, heads, same, c, s, data, which, constants, noise, scale, picks, sizes, starts, slots
):
    """Row after row, so that each stays in the cache, those of one replication together: they share their noise."""
    G, point = np.empty((2, s.shape[2])), np.empty(s.shape[2])
    for r in np.argsort(slots):
        state, mine, slot, start, draw = s[r], data[which[r]], slots[r], starts[r], 0
        for k in range(heads.shape[0]):
            size = sizes[k, r]
            constants[0] = scale[k, r]
            operator(state[0], mine, constants, noise[draw, slot], picks[slot, start : start + size], G[0])
            if heads[k, r]:
                one(c[k, r], state, G)
            else:
                look(c[k, r], state, G, point)
                if not same:
                    start, draw = start + size, draw + 1
                operator(point, mine, constants, noise[draw, slot], picks[slot, start : start + size], G[1])
                two(c[k, r], state, G)
            start, draw = start + size, draw + 1


class Stretch:
    """A method's compiled step with an oracle's compiled operator."""

    def __init__(self, steps: Steps, operator: Any) -> None:
        self._steps = steps
        kinds = ((operator, OPERATOR), (steps.one, STEP), (steps.look, LOOK), (steps.two, STEP))
        self._functions = [pointer(function, kind) for function, kind in kinds]
        self._known: dict[int, _Charges] = {}

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
        return cls(steps, operator)

    def advance(self, method: Method, state: State, session: Session, ks: range, coins: Array | None) -> bool:
        """Take the steps and count them; False, with nothing done, if just these have no compiled form."""
        steps, recipe, streams = self._steps, session.recipe, session.streams
        assert recipe is not None
        charges = self._charges(method, state, ks, coins)
        reader = _Noise if recipe.components is None else _Picks
        samples = reader(recipe, charges.sizes, steps.draws, streams)
        if not samples.possible:
            return False
        parameters = [np.ravel(getattr(method, name)) for name in steps.parameters]
        s, slots = _together(state), streams.slots()
        constants = np.array([0.0, *recipe.constants])
        for first in range(0, len(ks), samples.width):
            part = slice(first, min(first + samples.width, len(ks)))
            k = np.arange(ks[part.start], ks[part.stop - 1] + 1)[:, None]
            c = np.empty((len(k), len(s), steps.size))
            for j, values in enumerate(steps.coefficients(k, *parameters)):
                c[:, :, j] = values
            data = (recipe.data, recipe.which, constants)
            _run(*self._functions, charges.heads[part], steps.same, c, s, *data, *samples.read(part), slots)
        session.count(charges.draws, charges.evals)
        return True

    def _charges(self, method: Method, state: State, ks: range, coins: Array | None) -> _Charges:
        """What the steps cost; worked out once for each number of steps where all steps cost the same."""
        count, rows, steps = len(ks), len(state.x), self._steps
        same = coins is None and isinstance(getattr(method, "batch_size", None), (int, np.ndarray))
        if same and count in self._known:
            return self._known[count]
        cost = method.cost(np.arange(ks.start, ks.stop), state, coins)
        charges = _Charges(
            heads=_over_steps(steps.alone if coins is None else coins, count, rows),
            sizes=_over_steps(cost.draws, count, rows) // steps.draws,
            draws=_total(cost.draws, count),
            evals=_total(cost.evals, count),
        )
        if same:
            self._known[count] = charges
        return charges


class _Charges(NamedTuple):
    """Coins and batch sizes, (steps, rows), and what the steps cost in all."""

    heads: Array
    sizes: IntArray
    draws: Any
    evals: Any


class _Noise:
    """Vectors of additive noise for a stretch: one for each batch, scaled by its size."""

    def __init__(self, recipe: Recipe, sizes: IntArray, draws: int, streams: Streams) -> None:
        self._streams, self._sizes, self._draws = streams, sizes, draws
        self._scale = recipe.sigma / np.sqrt(streams.dimension * sizes)
        self._none = np.zeros((streams.slots().max() + 1, 0), np.int64), np.zeros(sizes.shape[1], np.int64)
        self.possible = isinstance(streams.position, int)
        self.width = max(1, _NOISE // (streams.dimension * draws))

    def read(self, part: slice) -> tuple[Array, ...]:
        """Noise, its scales, and no indices, for a part of the steps."""
        picks, starts = self._none
        noise = self._streams.vectors(self._draws * (part.stop - part.start))
        return noise, self._scale[part], picks, np.zeros_like(self._sizes[part]), starts


class _Picks:
    """Indices of components for a stretch, each row reading from its own position."""

    def __init__(self, recipe: Recipe, sizes: IntArray, draws: int, streams: Streams) -> None:
        assert recipe.components is not None
        self._streams, self._sizes, self._draws, self._n = streams, sizes, draws, recipe.components
        self._none = np.zeros((2 * len(sizes), streams.slots().max() + 1, 1))
        self.possible = bool(sizes.max() <= recipe.components)  # a larger batch is drawn in another way
        self.width = max(1, _PICKS // (draws * int(sizes.max())))

    def read(self, part: slice) -> tuple[Array, ...]:
        """No noise, and the indices, for a part of the steps."""
        sizes = self._sizes[part]
        picks, starts = self._streams.picks(self._n, self._draws * sizes.sum(axis=0))
        return self._none, np.zeros(sizes.shape), picks, sizes, starts


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
