"""Calls in other processes, by joblib: its own, or another backend chosen with `joblib.parallel_config`."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def in_parallel(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """The values of calls of a function, as they come; some backends return all of them at the end.

    They are made in this process if there is one job or one call, or if joblib is not installed.
    """
    try:
        import joblib
    except ImportError:
        jobs = 1
    if jobs == 1 or len(calls) < 2:
        yield from (function(*call) for call in calls)
        return
    backend, _ = joblib.parallel.get_active_backend()
    if type(backend).__name__ == "DaskDistributedBackend":
        yield from _on_dask(backend, function, calls)
        return
    order = "generator_unordered" if backend.supports_return_generator else "list"
    threads = {"inner_max_num_threads": 1} if backend.supports_inner_max_num_threads else {}
    pool = joblib.Parallel(jobs, return_as=order, batch_size=1, max_nbytes=None, **threads)
    values = pool(joblib.delayed(function)(*call) for call in calls)
    try:
        for value in values:  # noqa: UP028, which would close the values before the warning is off
            yield value
    finally:
        if order != "list":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that some values have been computed and are not used
                values.close()


def _on_dask(backend: Any, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Calls by dask's own client: joblib waits forever where a worker died or a value cannot be sent."""
    from distributed import as_completed

    futures = [backend.client.submit(function, *call, pure=False, **backend.submit_kwargs) for call in calls]
    try:
        for future in as_completed(futures):
            value = future.result()
            future.release()  # or it would be computed again if its worker is lost
            yield value
    finally:
        backend.client.cancel(futures)
