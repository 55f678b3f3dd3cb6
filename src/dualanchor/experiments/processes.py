"""Calls in processes, by joblib."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def spread(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int, least: int = 2
) -> Iterator[tuple[int, Any]]:
    """Call a function with each of these arguments, in processes if there are at least so many calls and jobs allow.

    Returns the number and the value of each call as it ends. Processes begin at once and are kept for the next time.
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
            if type(backend).__name__ == "LokyBackend":
                settings |= {"backend": "loky", "initializer": _leave_interrupts_to_the_main_process}
            pool = joblib.Parallel(n_jobs=jobs, return_as=order, batch_size=1, pre_dispatch="all", **settings)
            return iter(pool(joblib.delayed(_numbered)(*call) for call in _named(function, calls)))
    return (_numbered(*call) for call in _named(function, calls))


def _leave_interrupts_to_the_main_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _named(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return ((i, function, *call) for i, call in enumerate(calls))


def _numbered(i: int, function: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    return i, function(*arguments)
