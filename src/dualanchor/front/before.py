"""Samples spent before the run: progress shows them, Ctrl-C ends the call, and a checkpoint keeps what they gave."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.callbacks import Progress
from dualanchor.core.finding import Finding
from dualanchor.core.oracle import Batch, Oracle, WrappedOracle
from dualanchor.core.result import Result, Status, jsonable
from dualanchor.core.types import Array
from dualanchor.front.request import Request
from dualanchor.run.checkpoint import Saver
from dualanchor.run.observe import Observer
from dualanchor.run.record import Recorder

_IDENTITY = (  # keywords that the numbers of a call depend on
    "door", "L", "L_mean", "M", "mu", "sigma", "D", "guarantee", "confidence", "certificate", "check", "reps",
)  # fmt: skip
_LIMITS = ("eps", "budget", "max_samples")  # keywords that say when to stop


class InterruptedBeforeRun(KeyboardInterrupt):
    """Ctrl-C before the run began; `samples` had been spent."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.samples = samples


class _Watched(WrappedOracle):
    """An oracle that reports its samples to an observer, and ends the call if the user has interrupted it."""

    def __init__(self, inner: Oracle, observer: Observer, request: Request, samples: int) -> None:
        super().__init__(inner)
        self.tables = inner.tables
        self._observer, self._request, self._samples = observer, request, samples

    def mean(self, x: Array, batch: Batch) -> Array:
        value, size = self.inner.mean(x, batch), batch.size
        self._show(size if isinstance(size, int) else int(np.max(size)))
        return value

    def table(self, points: Sequence[Array], batches: Sequence[Batch], outer: Oracle | None = None) -> Array | None:
        values = self.inner.table(points, batches)
        if values is not None:
            self._show(len(points) * len(batches) * int(batches[0].size))
        return values

    def _show(self, samples: int) -> None:
        self._samples += samples
        self._observer.progress(self._progress)
        if self._observer.interrupted:
            raise InterruptedBeforeRun(self._samples)

    def _progress(self) -> Progress:
        rows = self._request.reps
        return Progress(0, 0.0, rows, rows, self._samples, self._observer.elapsed)


@contextmanager
def watched(oracle: Oracle, request: Request, spent: int = 0) -> Iterator[Oracle]:
    """The oracle for samples before the run; `spent` samples came before them."""
    with Observer(oracle, None, request.progress) as observer:
        yield _Watched(oracle, observer, request, spent)


def with_saver(request: Request, oracle: Oracle, x0: Array, prox: Callable[..., Any] | None) -> Request:
    """The request with its checkpoint opened; raises if the file belongs to another call or cannot be written."""
    if request.checkpoint is None or isinstance(request.checkpoint, Saver):
        return request
    method = request.method if isinstance(request.method, str) else request.method.describe()
    identity = {name: getattr(request, name) for name in _IDENTITY}
    identity = jsonable({**identity, "method": method, "dimension": x0.shape[0]})
    limits = {name: getattr(request, name) for name in _LIMITS}
    try:
        saver = Saver(request.checkpoint, identity, limits, oracle, x0, request.seed, prox)
    except KeyboardInterrupt:
        raise InterruptedBeforeRun(0) from None
    return replace(request, checkpoint=saver)


def result_at_start(request: Request, x0: Array, samples: int) -> Result:
    """The result of a call that was interrupted before its run: x0, with the samples spent."""
    rows, shape = arrays.tile(x0, request.reps), () if request.reps == 1 else (request.reps,)
    values: dict[str, Any] = {"success": False, "nit": 0, "nfev": samples, "draws": samples}
    status: Any = Status.INTERRUPTED
    if shape:
        values = {name: np.full(shape, value) for name, value in values.items()}
        status = np.full(shape, status, dtype=object)
    name = request.method if isinstance(request.method, str) else type(request.method).__name__
    about = {"id": name, "title": name, "citation": "dualanchor", "anytime": False, "parameters": {}}
    return Result(
        x=rows.reshape(*shape, -1),
        status=status,
        **values,
        residual=None,
        residual_kind=None,
        history=Recorder(0, ()).history(),
        state={"x": rows},
        problem={"name": request.door, "dimension": x0.shape[0]},
        method=about if isinstance(request.method, str) else jsonable(request.method.describe()),
        seed=request.seed,
        findings=(Finding.of("interrupted-before-run"),),
    )
