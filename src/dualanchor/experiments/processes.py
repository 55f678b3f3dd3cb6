"""Calls in processes, by joblib."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Hashable, Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import Any


def spread(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    jobs: int,
    least: int = 2,
    kin: Sequence[Hashable] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Call a function with each of these arguments, in processes if there are at least so many calls and jobs allow.

    Returns the number and the value of each call as it ends. Processes begin at once and are kept for the next time;
    each prefers calls that are of one kin, and leaves others' to them as long as there is something else to begin.
    Another backend than joblib's own is chosen with `joblib.parallel_config`; some return all values at the end.
    """
    if jobs > 1 and len(calls) >= least:
        try:
            import joblib
        except ImportError:
            pass
        else:
            backend, _ = joblib.parallel.get_active_backend()
            order = "generator_unordered" if backend.supports_return_generator else "list"
            settings: dict[str, Any] = {"inner_max_num_threads": 1} if backend.supports_inner_max_num_threads else {}
            here = type(backend).__name__ == "LokyBackend"
            if here:
                settings |= {"backend": "loky", "initializer": _leave_interrupts_to_the_main_process}
            pool = joblib.Parallel(n_jobs=jobs, return_as=order, batch_size=1, pre_dispatch="all", **settings)
            if here and kin is not None:
                return _preferring(pool, function, calls, kin)
            return iter(pool(joblib.delayed(_numbered)(*call) for call in _named(function, calls)))
    return (_numbered(*call) for call in _named(function, calls))


def _preferring(
    pool: Any, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], kin: Sequence[Hashable]
) -> Iterator[tuple[int, Any]]:
    """As many tickets as there are calls; whoever gets one claims a call by a file of its number.

    Every ticket has the arguments of all calls, which are best few, or share what is large.
    """
    claims = TemporaryDirectory(prefix="dualanchor-")
    found = pool([(_next, (function, calls, kin, claims.name), {})] * len(calls))

    def values() -> Iterator[tuple[int, Any]]:
        with claims:
            yield from found

    return values()


_last: Hashable = None  # the kin of the last call in this process


def _next(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], kin: Sequence[Hashable], claims: str
) -> tuple[int, Any]:
    """Make a call that nobody has claimed, if possible of the last kin here, or of one that nobody has begun."""
    global _last
    while True:
        claimed = {int(name) for name in os.listdir(claims)}
        begun = {kin[i] for i in claimed}
        i = min(set(range(len(calls))) - claimed, key=lambda i: (kin[i] != _last, kin[i] in begun, i))
        try:
            os.close(os.open(os.path.join(claims, str(i)), os.O_CREAT | os.O_EXCL))
        except FileExistsError:  # somebody was quicker
            continue
        _last = kin[i]
        return _numbered(i, function, *calls[i])


def _leave_interrupts_to_the_main_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _named(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return ((i, function, *call) for i, call in enumerate(calls))


def _numbered(i: int, function: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    return i, function(*arguments)
