"""Neighbouring rows that take steps by themselves: as many as fit the cache, in the shape that is quickest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dualanchor.core.method import Method, State
from dualanchor.core.oracle import Batch, Oracle, Session
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray
from dualanchor.fast.trace import is_elementwise

_BLOCK = 1 << 16  # numbers of an iterate worked on at a time: a handful of such arrays fit the cache
_SHORT = 512  # coordinates of a row: multiplying each such row with a number of its own takes long


@dataclass(frozen=True)
class Block:
    """Rows with their method and session.

    Where rows are short, the replications of a configuration, which have the same hyper-parameters, are `joined`: to
    the method they are one long row, with the same numbers.
    """

    rows: slice
    method: Method
    session: Session
    joined: int = 1

    @property
    def oracle(self) -> Oracle:
        """What is sampled, row by row."""
        F = self.session.oracle
        return F.inner if isinstance(F, _Joined) else F

    @contextmanager
    def of_state(self, state: State) -> Iterator[State]:
        """The rows' part of a state, as the method sees it, to be changed."""
        there = {name: value[self.rows] for name, value in vars(state).items()}
        views = {name: self._shaped(value) for name, value in there.items()}
        mine = State(**views)
        yield mine
        for name, value in vars(mine).items():
            copied = self.joined > 1 and not there[name].flags.c_contiguous
            if copied or value is not views[name]:  # the method put a new array in its place
                there[name][...] = value.reshape(there[name].shape)

    def _shaped(self, value: Array) -> Array:
        return value if self.joined == 1 else value.reshape(len(value) // self.joined, -1)


class _Joined(Oracle):
    """An oracle for points in which so many rows stand behind each other."""

    def __init__(self, inner: Oracle, joined: int) -> None:
        self.inner, self._joined = inner, joined

    def draw(self, streams: Streams, size: Any) -> Batch:
        return self.inner.draw(streams, size)

    def draw_many(self, streams: Streams, size: int, count: int) -> Iterator[Batch] | None:
        return self.inner.draw_many(streams, size, count)

    def mean(self, x: Array, batch: Batch) -> Array:
        return self.inner.mean(x.reshape(len(x) * self._joined, -1), batch).reshape(x.shape)

    def full_batch(self) -> Batch:
        return self.inner.full_batch()


def joining(session: Session, joined: int) -> Session:
    """The session for a method that sees so many rows as one."""
    return session if joined == 1 else Session(_Joined(session.oracle, joined), session.streams)


def in_blocks(rows: IntArray, replications: int, d: int) -> list[slice]:
    """Rows in groups that fit the cache, whole configurations as far as possible."""
    most = max(1, _BLOCK // d)
    if rows.size <= most:
        return [slice(0, rows.size)]
    ends = [*(np.flatnonzero(np.diff(rows // replications)) + 1).tolist(), rows.size]
    cuts = [0]
    for end, following in zip(ends, [*ends[1:], ends[-1] + most + 1], strict=True):
        while end - cuts[-1] > 2 * most:  # a configuration that is too large by itself
            cuts.append(cuts[-1] + most)
        if following - cuts[-1] > most:
            cuts.append(end)
    return [slice(start, end) for start, end in pairwise(cuts)]


def can_be_joined(method: Method, state: State, rows: IntArray, replications: int) -> bool:
    """Whether rows are all replications of several configurations, and short, and computed with elementwise."""
    return (
        rows.size > replications > 1
        and state.x.shape[1] < _SHORT
        and is_elementwise(method)
        and isinstance(method.cost(0, state).draws, int)
        and rows.size % replications == 0
        and _are_whole(rows.reshape(-1, replications))
    )


def _are_whole(configurations: IntArray) -> bool:
    """Whether these rows are all replications, in turn, of one configuration each."""
    replications = configurations.shape[1]
    first = configurations[:, :1] // replications * replications
    return bool((configurations == first + np.arange(replications)).all())
