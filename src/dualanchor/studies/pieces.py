"""The unit of work of a study, a piece: one method at points of its grid, for a block of seeds, run as one array.

Finished pieces are stored under a hash of everything that can change their numbers.
"""

import hashlib
import json
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor.advise.certify import certificate_from_session
from dualanchor.core.errors import ArgumentError, CheckpointError, OracleError
from dualanchor.core.files import jsonable, read_arrays, write_arrays
from dualanchor.core.result import Status
from dualanchor.core.session import Session
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.engines.isolation import end_with_parent, reseed_generators
from dualanchor.problems.named import NamedProblem
from dualanchor.run import Draws, solve
from dualanchor.studies.fingerprint import code_fingerprint
from dualanchor.studies.panel import Entry, Panel

CURVE_POINTS = 100  # recorded steps of a run with curves
EVALUATION_SAMPLES = 4096  # for estimating a final residual, at least; more if the budget is larger
CACHED_NUMBERS = 65_536  # in the iterates of a piece (rows times dimension): with what is computed, they fit the cache

Arrays = dict[str, Array]

_SAFE_PATH = "PYTHONSAFEPATH"  # environment variable: Python does not import from the working directory
_is_worker = False  # whether this process is one of joblib's workers
_writing = threading.Lock()  # held while a piece is written


@dataclass(frozen=True)
class Piece:
    """Points of an entry's grid for a block of seeds; with `curves`, residuals are recorded during the runs."""

    panel: Panel
    entry: Entry
    points: tuple[dict[str, Any], ...]
    seeds: tuple[int, ...]
    curves: bool = False

    @property
    def key(self) -> dict[str, Any]:
        """Everything that can change the numbers, except the code."""
        classes = (type(self.panel.problem), self.entry.cls)
        return {
            "problem": jsonable(self.panel.problem.describe()),
            "budget": self.panel.budget,
            "method": self.entry.cls.id,
            "classes": [f"{cls.__module__}.{cls.__qualname__}" for cls in classes],
            "fixed": jsonable(self.entry.fixed),
            "unit": self.entry.unit,
            "budget_factor": self.entry.budget_factor,
            "points": jsonable(list(self.points)),
            "seeds": list(self.seeds),
            "record": CURVE_POINTS if self.curves else 0,
        }

    @property
    def code(self) -> str | None:
        """The fingerprint of the code; None if the problem may hold functions, which have no fingerprint."""
        if not isinstance(self.panel.problem, NamedProblem):
            return None
        values = (value for parameters in (self.entry.fixed, *self.points) for value in parameters.values())
        objects = {type(value) for value in values if not isinstance(value, (np.ndarray, np.generic))}
        return code_fingerprint([type(self.panel.problem), self.entry.cls, *objects])

    @property
    def size(self) -> int:
        """About proportional to the time that it takes."""
        return len(self.points) * len(self.seeds) * self.panel.problem.dimension * self.panel.budget

    def run(self) -> Arrays:
        """Final residuals and counts, (points, seeds), and with `curves` the recorded lines as columns.

        A point of a grid whose iterates ran to where the user's function raises loses like one that diverged.
        """
        try:
            return self._solved()
        except OracleError as error:
            if error.row is None or not error.iteration or len(self.points) == 1:
                raise
            lost = error.row // len(self.seeds)
        others = replace(self, points=self.points[:lost] + self.points[lost + 1 :]).run()
        missing = {name: np.inf if name == "residual" else 0 for name in others}
        return {name: np.insert(value, lost, missing[name], axis=0) for name, value in others.items()}

    def _solved(self) -> Arrays:
        panel, entry = self.panel, self.entry
        methods = [panel.make(entry, point) for point in self.points]
        limit = panel.budget * entry.budget_factor
        count = {"stop": Draws(limit)} if entry.unit == "draws" else {"budget": limit}
        record = CURVE_POINTS if self.curves else 0
        result = solve(panel.problem, methods, reps=list(self.seeds), record=record, check=False, **count)
        if any(status is Status.INTERRUPTED for status in result.status.ravel()):
            raise KeyboardInterrupt  # an unfinished piece is not a result
        residual = self._estimated(result.x) if result.residual is None else result.residual
        residual = np.where(result.status == Status.DIVERGED, np.inf, residual)
        arrays = {"residual": residual, "evals": result.nfev, "draws": result.draws, "nit": result.nit}
        if self.curves:
            curve = result.history.columns()
            if not result.history.residual.size:  # F is not known: only the end is estimated
                ends = {"k": result.nit, "draws": result.draws, "evals": result.nfev, "residual": residual}
                curve = {"row": np.arange(residual.size), **{name: np.ravel(value) for name, value in ends.items()}}
            arrays |= {f"curve/{name}": value for name, value in curve.items()}
        return arrays

    def _estimated(self, x: Array) -> Array:
        """Final residuals where F is not known, (points, seeds), estimated outside the budget.

        Where noise hides a residual its standard error is returned, so that nothing is ranked by an estimate of 0.
        """
        shape, d = x.shape[:-1], x.shape[-1]
        seeds = np.array(self.seeds)
        oracle = self.panel.problem.instance(Streams(0, seeds, Purpose.INSTANCE)).oracle
        rows = np.tile(np.arange(seeds.size), shape[0])
        streams = Streams(0, seeds[rows], Purpose.CERTIFICATE, d, x.dtype)
        flat = x.reshape(-1, d)
        finite = np.asarray(np.isfinite(flat).all(axis=1))
        F = Session(oracle.take(rows[finite]), streams.take(finite))
        residual = np.full(rows.size, np.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            certificate = certificate_from_session(F, flat[finite], max(EVALUATION_SAMPLES, self.panel.budget))
            visible = np.maximum(certificate.residual, (certificate.upper - certificate.residual) / 3)
        residual[finite] = np.where(np.isfinite(visible), visible, np.inf)
        return residual.reshape(shape)


def pieces_of(
    panel: Panel, entry: Entry, points: Sequence[dict[str, Any]], seeds: Sequence[int], curves: bool
) -> list[Piece]:
    """An entry's runs in blocks of seeds that fit the cache; points stay together, since they share a seed's noise."""
    block_size = max(1, CACHED_NUMBERS // (len(points) * panel.problem.dimension))
    block_size = min(block_size, panel.seeds_per_block or block_size)
    blocks = np.array_split(np.array(seeds), ceil(len(seeds) / block_size))
    return [Piece(panel, entry, tuple(points), tuple(block.tolist()), curves) for block in blocks]


class Store:
    """A folder of finished pieces, created if it does not exist. Pieces are written atomically.

    `fresh` ignores what is stored; `replaced` counts the pieces of other versions of the code, which are removed.
    """

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        self._folder = folder.absolute()  # workers may have other working directories
        self._fresh = fresh
        self.replaced = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            rule = "The folder of results must be one that can be written"
            raise ArgumentError(rule, f"{folder}: {error}", "Give another") from None

    def path(self, key: dict[str, Any], code: str) -> Path:
        """The file of a piece; files of the same piece with other code are removed."""
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
        path = self._folder / f"{name}-{code}.npz"
        for other in self._folder.glob(f"{name}-*.npz"):
            if other != path:
                other.unlink(missing_ok=True)
                self.replaced += 1
        return path

    def load(self, path: Path) -> Arrays | None:
        """The arrays of a finished piece; None if there are none, or they cannot be read."""
        if self._fresh or not path.exists():
            return None
        try:
            return read_arrays(path)[1]
        except CheckpointError:
            return None


def run_pieces(pieces: Sequence[Piece], store: Store | None, jobs: int) -> Iterator[tuple[Piece, Arrays]]:
    """Each piece with its arrays, as they finish: stored ones first; the others are stored by whoever computes them."""
    waiting: list[tuple[Piece, Path | None]] = []
    for piece in pieces:
        path = store.path(piece.key, code) if store is not None and (code := piece.code) is not None else None
        stored = store.load(path) if store is not None and path is not None else None
        if stored is None:
            waiting.append((piece, path))
        else:
            yield piece, stored
    waiting.sort(key=lambda pair: pair[0].size, reverse=True)  # a large piece at the end would run alone
    calls = [(number, piece, path) for number, (piece, path) in enumerate(waiting)]
    for number, arrays in in_parallel(_computed, calls, jobs):
        yield waiting[number][0], arrays


def _computed(number: int, piece: Piece, path: Path | None) -> tuple[int, Arrays]:
    if _is_worker and not isinstance(piece.panel.problem, NamedProblem):
        reseed_generators()  # those held by its functions were sent with each piece, in the same state
    arrays = piece.run()
    if path is not None:
        with _writing:
            write_arrays(path, {"piece": piece.key}, arrays)
    return number, arrays


def _start_worker(parent: int) -> None:
    """The initializer of joblib's processes: they end with their parent, and leave Ctrl-C to it."""
    global _is_worker
    _is_worker = True
    end_with_parent(parent, _writing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.pop(_SAFE_PATH, None)


@contextmanager
def _guarded() -> Iterator[None]:
    """While workers may start: they do not import from the working directory, and SIGTERM acts like Ctrl-C."""

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with ExitStack() as undo:
        if _SAFE_PATH not in os.environ:
            os.environ[_SAFE_PATH] = "1"
            undo.callback(os.environ.pop, _SAFE_PATH, None)
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            undo.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, interrupt))
        yield


def in_parallel(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """The values of calls of a function, as they finish, computed by joblib with the backend that is active.

    They are computed in this process if there is one job or one call, or if joblib is not installed.
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
    options: dict[str, Any] = {"inner_max_num_threads": 1} if backend.supports_inner_max_num_threads else {}
    if type(backend).__name__ == "LokyBackend":
        options |= {"initializer": _start_worker, "initargs": (os.getpid(),)}
    pool = joblib.Parallel(jobs, return_as=order, batch_size=1, max_nbytes=None, **options)
    with _guarded():
        values = pool(joblib.delayed(function)(*call) for call in calls)
        try:
            for value in values:  # noqa: UP028, which would close the values before the warning is off
                yield value
        finally:
            if order != "list":
                with warnings.catch_warnings(action="ignore"):  # about values that were computed and not used
                    values.close()


def _on_dask(backend: Any, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """As `in_parallel`, by dask's own client: joblib waits forever if a worker dies or a value cannot be sent."""
    from distributed import as_completed

    futures = [backend.client.submit(function, *call, pure=False, **backend.submit_kwargs) for call in calls]
    try:
        for future in as_completed(futures):
            value = future.result()
            future.release()  # else it would be computed again if its worker is lost
            yield value
    finally:
        backend.client.cancel(futures)
