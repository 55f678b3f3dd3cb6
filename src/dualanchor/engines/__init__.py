"""Where a batch is computed: on this machine, by the ranks of an MPI job, or by the actors of a Ray cluster.

Examples
--------
>>> import numpy as np, dualanchor as da
>>> with da.engines.Local(1) as engine:
...     result = da.root(lambda x, n, rng: x - 1 + rng.normal(size=2) / n**0.5, np.zeros(2), budget=500, engine=engine)
>>> result.x.shape
(2,)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dualanchor.core.errors import ArgumentTypeError, unknown_name
from dualanchor.engines.base import Engine, Latency, attach, engine_of
from dualanchor.engines.local import Local
from dualanchor.engines.mpi import MPI
from dualanchor.engines.ray import Ray
from dualanchor.oracles.shards import SHARDS, Shardable, ShardedData

__all__ = ["SHARDS", "Engine", "Latency", "Local", "MPI", "Ray", "Shardable", "ShardedData"]
__all__ += ["attach", "engine_of", "make", "opened"]

_ENGINES: dict[str, type[Engine]] = {"local": Local, "mpi": MPI, "ray": Ray}


def make(name: str, **options: Any) -> Engine:
    """An engine by its name, "local", "mpi" or "ray"; options that are None are left out."""
    if name not in _ENGINES:
        raise unknown_name("engine", name, _ENGINES)
    return _ENGINES[name](**{key: value for key, value in options.items() if value is not None})


@contextmanager
def opened(engine: Engine | str | None) -> Iterator[Engine | None]:
    """The engine itself; one that is made from a name is closed afterwards."""
    if isinstance(engine, str):
        with make(engine) as made:
            yield made
    elif engine is None or isinstance(engine, Engine):
        yield engine
    else:
        remedy = "Use engine='local' or dualanchor.engines.Local(workers=4)"
        raise ArgumentTypeError("engine must be 'local', 'mpi', 'ray' or an engine", repr(engine), remedy)
