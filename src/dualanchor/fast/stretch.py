"""Many steps of many rows in one compiled call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from math import prod
from typing import Any, Self

import numpy as np

from dualanchor.core.method import Cost, Method, State
from dualanchor.core.oracle import Recipe, Session
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray
from dualanchor.fast import checked_every
from dualanchor.fast.code import COUNT, COUNTS, NUMBERS, TRUTHS, Function
from dualanchor.fast.operators import compiled_operator
from dualanchor.fast.steps import FIELDS, Steps, address, steps_of

_LONGEST = 1 << 17  # coordinates of a row; longer ones are stepped one step at a time
_NOISE = 1 << 15  # numbers of noise that one replication reads in one call: a part of the cache
_MORE_NOISE, _FEW = 1 << 18, 8  # of which more is read where each replication has but a few rows
_CHUNK = 512  # coordinates
_PICKS = 1 << 18  # indices that one replication reads in one call, at most

_ARRAYS: dict[str, Any] = {
    "order": COUNTS,  # the rows in turn
    "s": NUMBERS,  # the state, (rows, fields, d)
    "data": NUMBERS,  # of the operator, (instances, ..)
    "which": COUNTS,  # of them each row has
    "constants": NUMBERS,  # of the operator, after the scale of the noise
    "c": NUMBERS,  # coefficients, (steps, configurations, numbers)
    "alike": COUNTS,  # which configuration each row belongs to
    "heads": TRUTHS,  # whether a step is one evaluation, (steps, rows)
    "noise": COUNTS,  # where that of each draw stands, (slots, d)
    "scale": NUMBERS,  # of it, (steps, rows)
    "picks": COUNTS,  # indices, by slot
    "sizes": COUNTS,  # of batches, (steps, rows)
    "starts": COUNTS,  # where each row's indices begin
    "slots": COUNTS,  # of each row, among noise and picks
    "shown": COUNTS,  # where the iterates after each step are kept, or -1
    "points": NUMBERS,  # these, (kept, rows, d)
    "origin": NUMBERS,  # the state when it was last checked
    "left": COUNTS,  # after how many steps each row left; below zero where it has, and it is not known when
    "G": NUMBERS,  # room for two values of F
    "point": NUMBERS,  # and for the second point
}
_NUMBERS = (
    *("operator", "one", "look", "two"),  # where these functions stand
    "same",  # whether both evaluations use one batch
    *("keep", "check", "careful"),  # whether to keep the state before; to check it after; to end where a row leaves
    *("count", "steps", "rows", "fields", "d"),
    *("chunk", "chunks"),  # coordinates on which an operator and what uses it work in turn, and how many such there are
    *("per_instance", "configurations", "per_configuration", "per_noise", "per_slot"),
)
_PLACES = {name: place for place, name in enumerate((*_NUMBERS, *_ARRAYS))}
_DTYPES: dict[str, Any] = {
    name: np.float64 if kind is NUMBERS else np.int64 if kind is COUNTS else np.bool_ for name, kind in _ARRAYS.items()
}


class _Table:
    """What `_run` is given: numbers, and where arrays stand."""

    def __init__(self, **given: Any) -> None:
        self._entries, self._arrays = np.zeros(len(_PLACES), np.int64), dict[str, Array]()
        self.put(given)

    def put(self, given: dict[str, Any]) -> None:
        """Set some entries; arrays are kept as long as they stand there."""
        for name, value in given.items():
            if name in _DTYPES:
                self._arrays[name] = value = np.ascontiguousarray(value, _DTYPES[name])
                value = address(value)
            self._entries[_PLACES[name]] = value

    def run(self) -> None:
        """Take the steps."""
        _run()(address(self._entries))


@cache
def _run() -> Callable[[int], None]:
    """Steps of many rows in one call, row after row, so that each stays in the cache; what it needs is in a table."""
    f = Function("run", COUNTS)
    (table,) = f.given
    entries = {name: table[place] for name, place in _PLACES.items()}
    n = {name: entries[name] for name in _NUMBERS}
    a = {name: f.array(entries[name], kind) for name, kind in _ARRAYS.items()}
    G, G1, point, d, rows = a["G"], a["G"] + n["d"], a["point"], n["d"], n["rows"]
    start, draw = (f.variables(COUNT, 0) for _ in range(2))
    total, zero = f.variables(NUMBERS.pointee, 0.0), f.number(0, COUNT)
    with f.loop(0, n["count"]) as i:
        r = a["order"][i]
        state = a["s"] + r * n["fields"] * d
        x, slot = state, a["slots"][r]
        room = [state + d * j for j in range(FIELDS)]
        start[0], draw[0] = a["starts"][r], 0
        with f.when(n["keep"] > 0), f.loop(0, n["fields"] * d) as j:
            (a["origin"] + r * n["fields"] * d)[j] = state[j]

        def add_squares(x: Any = x) -> None:
            total[0] = 0.0
            with f.loop(0, d) as j:
                total[0] = total[0].plus_in_any_order(x[j] * x[j])

        with f.loop(0, n["steps"]) as k:
            at = k * rows + r
            size, numbers = a["sizes"][at], a["c"] + (k * n["configurations"] + a["alike"][r]) * n["per_configuration"]
            a["constants"][0] = a["scale"][at]

            def evaluate(point: Any, value: Any, first: Any, last: Any) -> None:
                noise = f.array(a["noise"][draw[0]], NUMBERS) + slot * n["per_noise"]
                picks = a["picks"] + (slot * n["per_slot"] + start[0])
                data = a["data"] + a["which"][r] * n["per_instance"]
                f.call(n["operator"], point, data, a["constants"], noise, picks, size, value, d, first, last)

            def evaluate_and(use: str, at: Any, value: Any) -> None:
                """In chunks of coordinates, so that what is computed is used while it is at hand."""
                with f.loop(0, n["chunks"]) as chunk:
                    first = chunk * n["chunk"]
                    rest = d - first
                    length = f.either(rest < n["chunk"], rest, n["chunk"])
                    evaluate(at, value, first, first + length)
                    f.call(n[use], numbers, *(one + first for one in (*room, G, G1, point)), length)

            def go_on() -> None:
                start[0], draw[0] = start[0] + size, draw[0] + 1

            with f.branches(a["heads"][at] > 0) as (heads, tails):
                with heads:
                    evaluate(x, G, zero, d)
                    f.call(n["one"], numbers, *room, G, G1, point, d)
                with tails:
                    evaluate_and("look", x, G)
                    with f.when(n["same"] < 1):
                        go_on()
                    evaluate_and("two", point, G1)
            go_on()
            shown = a["shown"][k]
            with f.when(shown > -1):
                kept = a["points"] + (shown * rows + r) * d
                with f.loop(0, d) as j:
                    kept[j] = x[j]
            with f.when(n["careful"] > 0):
                add_squares()
                with f.unless(total[0] < np.inf):  # not finite, or not to be squared
                    a["left"][r] = k + 1
                    f.leave()
        with f.when(n["check"] > 0):
            add_squares()
            with f.unless(total[0] < np.inf):
                a["left"][r] = -1
    return ctypes.CFUNCTYPE(None, ctypes.c_int64)(f.address())


class Stretch:
    """A method's compiled step with an oracle's compiled operator."""

    def __init__(self, steps: Steps, operator: int, method: Method, rows: int) -> None:
        self._steps, self._operator = steps, operator
        # Replications of a configuration have the same coefficients, which are worked out once for all of them.
        each = [np.broadcast_to(np.asarray(getattr(method, name)).ravel(), (rows,)) for name in steps.parameters]
        distinct, self._alike = _distinct(each, rows)
        self._parameters = [values[distinct] for values in each]
        self._rooms: dict[str, Array] = {}

    @classmethod
    def of(cls, method: Method, state: State, recipe: Recipe) -> Self | None:
        """The stretch for a method's rows; None if a part of it has no compiled form."""
        steps, operator = steps_of(method), compiled_operator(recipe.operator)
        if steps is None or operator is None or list(vars(state)) != steps.fields:
            return None
        if any(value.dtype != np.float64 for value in vars(state).values()) or state.x.shape[1] > _LONGEST:
            return None
        if getattr(method, "estimator", None) is not None:
            return None
        if method.probability(0) is not None and not steps.same:
            return None  # rows whose coins differ would read different numbers of samples
        return cls(steps, operator, method, len(state.x))

    def alike_ahead(self, method: Method, state: State, session: Session, ks: range, coins: Array | None) -> int:
        """How many of the next steps, from the first on, have a compiled form, or have none: like the first."""
        recipe = session.recipe
        if recipe is None or recipe.components is None:
            return len(ks)
        _, sizes = self._batches(method, state, ks, coins)
        too_large = np.any(sizes > recipe.components, axis=1).tolist()
        return [*too_large, not too_large[0]].index(not too_large[0])

    def advance(
        self, method: Method, state: State, session: Session, ks: range, coins: Array | None, asked: Sequence[int] = ()
    ) -> tuple[Array, IntArray] | None:
        """Take the steps and count them, each row as long as it is finite.

        Returns the iterates after the numbers of steps asked for, (numbers, rows, d), where a row has not left by
        then, and after how many steps each row left, 0 if it did not. The next call overwrites the iterates. None, with
        nothing done, if just these steps have no compiled form.
        """
        steps, recipe, streams = self._steps, session.recipe, session.streams
        assert recipe is not None
        count, rows = len(ks), len(state.x)
        cost, sizes = self._batches(method, state, ks, coins)
        heads = _over_steps(steps.alone if coins is None else coins, count, rows)
        samples = (_Noise if recipe.components is None else _Picks)(recipe, sizes, steps.draws, streams)
        if not samples.possible:
            return None
        s = _together(state)
        points, left = self._room("points", len(asked), *state.x.shape), np.zeros(rows, np.int64)
        shown, origin = np.full(count, -1), self._room("origin", *s.shape)
        shown[[k - 1 for k in asked]] = np.arange(len(asked))
        c, d = self._coefficients(ks), s.shape[2]
        chunk = _CHUNK if recipe.components is None else d
        table = _Table(
            operator=self._operator, one=steps.one, look=steps.look, two=steps.two,
            same=steps.same, rows=rows, fields=s.shape[1], d=d, chunk=chunk, chunks=-(-d // chunk),
            s=s, data=recipe.data, per_instance=recipe.data[0].size, which=recipe.which,
            constants=np.array([0.0, *recipe.constants]), alike=self._alike, slots=streams.slots(),
            configurations=c.shape[1], per_configuration=c.shape[2],
            points=points, left=left, origin=origin, G=np.empty((2, d)), point=np.empty(d),
        )  # fmt: skip

        def walk(first: int, last: int, order: IntArray, careful: bool) -> None:
            """Steps first .. last - 1 of these rows, as many in one call as there is noise at hand."""
            began = first
            while first < last and order.size:
                width, read = samples.read(first, last)
                part, usual = slice(first, first + width), not careful
                table.put({"keep": usual and first == began, "check": usual and first + width == last})
                table.put({"order": order, "count": order.size, "steps": width, "c": c[part], "careful": careful})
                table.put({"heads": heads[part], "sizes": sizes[part], "shown": shown[part], **read})
                table.run()
                if careful:
                    gone = left[order] > 0
                    left[order[gone]] += first
                    order = order[~gone]
                first += width

        order = np.argsort(streams.slots(), kind="stable")  # rows of one replication share its noise
        every = checked_every(d)
        checked = [*range(every - ks.start % every, count, every), count]
        for first, last in pairwise([0, *checked]):
            position = streams.position
            walk(first, last, order, careful=False)
            out = left[order] < 0
            if out.any():
                gone, order, after = order[out], order[~out], streams.position
                s[gone], left[gone], streams.position = origin[gone], 0, position
                walk(first, last, gone, careful=True)
                streams.position = after
        session.count(_total(cost.draws, count), _total(cost.evals, count))
        return points, left

    def _room(self, name: str, *shape: int) -> Array:
        """Room for numbers, the same in every call as long as it is large enough: new room takes time to come by."""
        size = prod(shape)
        if name not in self._rooms or self._rooms[name].size < size:
            self._rooms[name] = np.empty(size)
        return self._rooms[name][:size].reshape(shape)

    def _batches(self, method: Method, state: State, ks: range, coins: Array | None) -> tuple[Cost, IntArray]:
        """What these steps cost, and how large their batches are, (steps, rows)."""
        cost = method.cost(np.arange(ks.start, ks.stop), state, coins)
        return cost, _over_steps(cost.draws, len(ks), len(state.x)) // self._steps.draws

    def _coefficients(self, ks: range) -> Array:
        """The numbers of these steps, (steps, configurations, numbers)."""
        k = np.arange(ks.start, ks.stop)[:, None]
        c = np.empty((len(ks), max(map(len, self._parameters), default=1), self._steps.size))
        for j, values in enumerate(self._steps.coefficients(k, self._parameters)):
            c[:, :, j] = values
        return c


class _Noise:
    """Vectors of additive noise for a stretch: one for each batch, scaled by its size."""

    def __init__(self, recipe: Recipe, sizes: IntArray, draws: int, streams: Streams) -> None:
        self._streams, self._draws = streams, draws
        self._scale = recipe.sigma / np.sqrt(streams.dimension * sizes)
        self._none = {"picks": np.zeros(1, np.int64), "per_slot": 0, "starts": np.zeros(sizes.shape[1], np.int64)}
        self.possible = isinstance(streams.position, int)
        # Many rows that share noise read it from the cache; few had better not be called for often.
        numbers = _NOISE if sizes.shape[1] > _FEW * streams.distinct else _MORE_NOISE
        self._width = max(1, numbers // (streams.dimension * draws))
        self._parts: list[Array] = []

    def read(self, first: int, last: int) -> tuple[int, dict[str, Any]]:
        """For how many of these steps this is, and noise, its scales, and no indices."""
        width = min(last - first, self._width)
        self._parts = self._streams.vectors(self._draws * width)
        places = [address(part) + part.strides[0] * np.arange(len(part)) for part in self._parts]
        found = {"noise": np.concatenate(places), "per_noise": self._streams.dimension}
        return width, {**found, "scale": self._scale[first : first + width], **self._none}


class _Picks:
    """Indices of components for a stretch, each row reading from its own position."""

    def __init__(self, recipe: Recipe, sizes: IntArray, draws: int, streams: Streams) -> None:
        assert recipe.components is not None
        self._streams, self._sizes, self._draws, self._n = streams, sizes, draws, recipe.components
        self._nowhere = np.zeros(1)
        self._none = {"per_noise": 0, "noise": np.full(2 * len(sizes), address(self._nowhere))}
        self._scale = np.zeros(sizes.shape)
        self.possible = bool(sizes.max() <= recipe.components)  # a larger batch is drawn in another way
        self._width = max(1, _PICKS // (draws * int(sizes.max())))

    def read(self, first: int, last: int) -> tuple[int, dict[str, Any]]:
        """For how many of these steps this is, and no noise, and the indices."""
        width = min(last - first, self._width)
        picks, starts = self._streams.picks(self._n, self._draws * self._sizes[first : first + width].sum(axis=0))
        found = {"picks": picks, "per_slot": picks.shape[1], "starts": starts}
        return width, {**found, "scale": self._scale[first : first + width], **self._none}


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


def update_of(method: Method, state: State) -> Callable[[int, State, Array], None] | None:
    """A method's elementwise update as one pass over each row, or None if it has no compiled form."""
    steps, dtype = steps_of(method), state.x.dtype
    if steps is None or list(vars(state)) != steps.fields or (compiled := steps.update(dtype)) is None:
        return None
    parameters = [np.ravel(getattr(method, name)) for name in steps.parameters]

    def update(k: int, s: State, G: Array) -> None:
        arrays = [*vars(s).values(), G]
        if any(value.dtype != dtype or value.strides[1] != value.itemsize for value in arrays):
            method.update(k, s, G)
            return
        c = np.empty((len(G), steps.size))
        for j, values in enumerate(steps.coefficients(k, parameters)):
            c[:, j] = values
        for row in range(len(G)):
            compiled(c[row], [value[row] for value in vars(s).values()], G[row])

    return update


def _together(state: State) -> Array:
    """The state as one array, (rows, fields, d); its fields become views of that."""
    fields = vars(state)
    s: Any = state.x.base
    together = s is not None and s.ndim == 3 and s.shape[1] == len(fields) and s.flags.c_contiguous
    if not together or any(value.base is not s for value in fields.values()):
        s = np.stack(list(fields.values()), axis=1)
        for j, name in enumerate(fields):
            setattr(state, name, s[:, j])
    return s
