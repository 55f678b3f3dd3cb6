"""An accuracy without constants: stages of a method, each judged on fresh samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dualanchor.advise.certify import Certificate, certificate_from_session, group_sizes
from dualanchor.core import arrays
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle, Session
from dualanchor.core.problem import Problem
from dualanchor.core.result import History, Result, Status
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.ask import Ask
from dualanchor.run.checkpoint import Checkpoint
from dualanchor.run.solve import solve
from dualanchor.run.told import as_callback

FIRST = 256  # samples of the first stage
SHARE = 4  # a stage's first certificate takes one sample for so many of the stage
SHORTEST, FEWEST = 32, 64  # samples of a stage and of a certificate, at least
_FAR = 1e6  # times the samples: further than anybody would go
_STALLED = 0.8  # of the residual at a quarter of the samples; one that falls with their root is at half of it
_STAGE = 1 << 32  # stage j of replication r reads the streams of replication j * this + r


class Certified(NamedTuple):
    """What came out, its certificate, and in which sense eps was delivered."""

    result: Result
    certificate: Certificate | None
    sense: str


def until_certified(
    oracle: Oracle, x0: Array, *, eps: float, method: Callable[[int], Method], most: int, ask: Ask
) -> Certified:
    """Run stages of growing length, each from where the one before ended, until an upper bound is at most eps.

    `method` makes the method for a stage of so many samples; no row spends more than `most` samples in all. The failure
    probability is split over the certificates of a row, the i-th gets 1/(i(i+1)) of it, so that none of them is wrong
    with the overall confidence. Every stage and every certificate has fresh samples of its own, and what a row does
    depends on that row alone: it would do the same by itself.
    """
    run = _Rows(oracle, x0, eps, most, ask)
    callback = None if ask.callback is None else as_callback(ask.callback)
    while run.active.size:
        for here, stage, length in list(run.groups()):
            result = solve(
                Problem(oracle.take(here), x0[0], name=ask.door),
                method(length),
                budget=length,
                seed=ask.seed,
                reps=(stage * _STAGE + here).tolist(),
                x0=run.x[here],
                record=0,
                check=False,
                progress=ask.progress,
                checkpoint=_numbered(ask.checkpoint, stage, None if ask.reps == 1 else int(here[0])),
            )
            run.after(here, result)
            if any(one is Status.INTERRUPTED for one in result.status):
                run.end(Status.INTERRUPTED)
                break
            if callback is not None and callback(run.result(result.method, Status.RUNNING)):
                run.end(Status.CALLBACK)
                break
            try:
                run.judge(here, length)
            except KeyboardInterrupt:
                run.end(Status.INTERRUPTED)
                break
    return Certified(run.result(result.method), run.certificate(), run.sense())


class _Rows:
    """Where each replication stands."""

    def __init__(self, oracle: Oracle, x0: Array, eps: float, most: int, ask: Ask) -> None:
        rows = x0.shape[0]
        self.oracle, self.ask, self.eps, self.most = oracle, ask, eps, most
        self.x, self.best = arrays.copy(x0), arrays.copy(x0)
        self.stage, self.doublings = np.zeros(rows, int), np.zeros(rows, int)  # doublings: of length, in halves
        self.upper, self.residual, self.squared, self.sigma = (np.full(rows, np.inf) for _ in range(4))
        self.last, self.width = np.full(rows, np.inf), np.full(rows, np.inf)  # of the latest certificate
        self.spent, self.drawn, self.nit, self.tests, self.used = (np.zeros(rows, int) for _ in range(5))
        self.status = np.full(rows, Status.BUDGET, dtype=object)
        self.made: Certificate | None = None
        self.lines: list[tuple[Array, Array, Array, Array, Array]] = []

    @property
    def active(self) -> Array:
        """Rows that go on: not certified, not diverged, and able to pay for another stage with its certificate."""
        running = np.array([one is Status.BUDGET for one in self.status])
        lengths = self._lengths()
        return np.flatnonzero(running & (lengths >= SHORTEST) & ((self.stage == 0) | (4 * lengths >= self._wanted())))

    def groups(self) -> Iterator[tuple[Array, int, int]]:
        """Active rows that do the same next, with the number of their stage and its length."""
        here = self.active
        keys = np.stack([self.stage[here], self._lengths()[here], self.tests[here]], axis=1)
        for key in np.unique(keys, axis=0):
            yield here[(keys == key).all(axis=1)], int(key[0]), int(key[1])

    def _wanted(self) -> Array:
        return np.rint(FIRST * 2 ** (self.doublings / 2)).astype(int)

    def _lengths(self) -> Array:
        """What each row would spend on its next stage: what is wanted, halved as often as it takes to pay for it."""
        left, lengths = self.most - self.spent, self._wanted()
        while (costly := (lengths >= SHORTEST) & (lengths + _judging(lengths) > left)).any():
            lengths = np.where(costly, lengths // 2, lengths)
        return lengths

    def after(self, here: Array, result: Result) -> None:
        self.spent[here] += result.nfev
        self.drawn[here] += result.draws
        self.nit[here] += result.nit
        gone = np.array([one is Status.DIVERGED for one in result.status])
        self.status[here[gone]] = Status.DIVERGED
        self.x = arrays.put(self.x, here[~gone], arrays.take(result.x, ~gone))

    def end(self, status: Status) -> None:
        self.status[[one is Status.BUDGET for one in self.status]] = status

    def judge(self, here: Array, length: int) -> None:
        """Certify each row on fresh samples, and once more with as many as it seems to take where that is few."""
        here = self._unsettled(here)
        samples = int(_judging(length))
        self._certify(here, 0, samples)
        rows = self._unsettled(here)
        gap, width = self.eps - self.last[rows], self.width[rows]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # widths fall like one over the root
            needed = 1.3 * samples * (width / np.where(gap > 0.2 * self.eps, gap, np.nan)) ** 2
        worth = needed <= 6 * samples * SHARE
        powers = np.ceil(np.log(np.maximum(needed[worth], samples)) / np.log(1.25))
        rows, counts = rows[worth], np.ceil(1.25**powers).astype(int)
        payable = self.spent[rows] + counts <= self.most
        for count in np.unique(counts[payable]):  # rows that need about as many are certified together
            self._certify(rows[payable & (counts == count)], 1, int(count))
        self.stage[here] += 1
        self.doublings[here] += self._growth(self.last[here])

    def _unsettled(self, rows: Array) -> Array:
        return rows[[one is Status.BUDGET for one in self.status[rows]]]

    def _certify(self, rows: Array, number: int, samples: int) -> None:
        if not rows.size:
            return
        tests = int(self.tests[rows[0]]) + 1  # the same for all of them
        level = 1 - (1 - self.ask.level) / (tests * (tests + 1))
        replications = (2 * self.stage[rows] + number) * _STAGE + rows
        streams = Streams(self.ask.seed, replications, Purpose.CERTIFICATE, self.x.shape[1], self.x.dtype)
        F = Session(self.oracle.take(rows), streams)
        made = self.made = certificate_from_session(F, self.x[rows], samples, confidence=level)
        self.tests[rows] = tests
        self.spent[rows] += made.samples
        self.drawn[rows] += made.samples
        with np.errstate(invalid="ignore"):  # both may be infinite
            self.last[rows], self.width[rows] = made.residual, made.upper - made.residual
        self.lines.append((rows, self.nit[rows], self.drawn[rows], self.spent[rows], made.residual))
        picked = made.upper < self.upper[rows]
        better = rows[picked]
        self.best, self.used[better] = arrays.put(self.best, better, self.x[better]), made.samples
        for name in ("upper", "residual", "squared", "sigma"):
            getattr(self, name)[better] = getattr(made, name)[picked]
        self.status[rows[made.upper <= self.eps]] = Status.TARGET

    def _growth(self, residual: Array) -> Array:
        """How often the next stage doubles, in halves: errors fall at best like one over the root of the samples."""
        with np.errstate(divide="ignore"):
            doublings = 4 * np.log2(residual / (0.6 * self.eps))
        return np.clip(np.nan_to_num(np.ceil(doublings), posinf=2.0), 2, 4).astype(int)

    # -- what came out ---------------------------------------------------------------------------------------

    def result(self, method: dict[str, Any], status: Status | None = None) -> Result:
        """The result as it stands; `status` instead of that of rows under way."""
        single = self.ask.reps == 1
        statuses = self.status.copy()
        if status is not None:
            statuses[[one is Status.BUDGET for one in statuses]] = status
        done = np.array([one is Status.TARGET for one in statuses])
        kept = np.flatnonzero(np.isfinite(self.upper) if status is None else done)
        x = arrays.put(arrays.copy(self.x), kept, self.best[kept])

        def shaped(values: Any) -> Any:
            return values[0].item() if single else values.copy()

        columns = [np.concatenate(parts) for parts in zip(*self.lines, strict=True)] or [np.zeros(0)] * 5
        row, k, draws, evals = (column.astype(int) for column in columns[:4])
        return Result(
            x=x[0] if single else x,
            success=shaped(done),
            status=statuses[0] if single else statuses,
            nit=shaped(self.nit),
            nfev=shaped(self.spent),
            draws=shaped(self.drawn),
            residual=None,
            residual_kind=None,
            history=History(row=row, k=k, draws=draws, evals=evals, residual=columns[4]),
            state={"x": x},
            problem={"name": self.ask.door, "dimension": self.x.shape[1]},
            method={**method, "parameters": {}},
            seed=self.ask.seed,
        )

    def certificate(self) -> Certificate | None:
        """The smallest bound of each row; all bounds hold together with the confidence asked for."""
        if self.made is None:
            return None
        numbers = {name: getattr(self, name) for name in ("upper", "residual", "squared", "sigma")}
        numbers |= {"samples": self.used, "groups": group_sizes(int(self.used.min()))[0]}
        if self.ask.reps == 1:
            numbers |= {name: numbers[name][0].item() for name in numbers if name != "groups"}
        note = "the confidence is that of all certificates made on the way together"
        notes = (note, *(one for one in self.made.notes if "samples were used" not in one))
        return replace(self.made, **numbers, confidence=self.ask.level, notes=notes)

    def sense(self) -> str:
        """In which sense eps was delivered, or what is known instead and what it would take."""
        said, worst = delivered(self.upper, self.eps, self.ask.level), float(np.max(self.upper))
        factor = max(2.0, (worst / self.eps) ** 2)  # bounds fall at best like one over the root of the samples
        if worst <= self.eps or factor > _FAR:
            return said
        if (level := self._stalled(int(np.argmax(self.upper)))) is not None:
            return (
                f"{said}; the residual has stayed near {level:.2g} for most of the samples, so more may not help: is "
                "there a root, and does the method come nearer to it with this step and batch size?"
            )
        return f"{said}; it may take {factor:.2g} times the samples"

    def _stalled(self, row: int) -> float | None:
        """The residual of a row, if it is clearly above eps and has hardly fallen since a quarter of the samples."""
        early = [
            float(residual[rows == row][0])
            for rows, _, _, spent, residual in self.lines
            if row in rows and spent[rows == row][0] <= self.spent[row] / 4
        ]
        last, clear = self.last[row], self.last[row] > max(self.eps, 2 * self.width[row])
        return float(last) if early and clear and last > _STALLED * early[-1] else None


def delivered(upper: Any, eps: float, confidence: float) -> str:
    """What certificates say about eps: that it holds, or what holds instead."""
    upper, level = np.atleast_1d(upper), f"with confidence {confidence:g}"
    missed = upper > eps
    if not missed.any():
        return f"|F(x)| <= {eps:g} {level}, by certificate"
    count = "not reached" if missed.all() else f"not reached by {np.count_nonzero(missed)} of {missed.size}"
    worst = float(np.max(upper))
    if not np.isfinite(worst):
        return f"{count}: nothing could be certified"
    return f"{count}: |F(x)| <= {worst:.4g} {level} is certified"


def _judging(length: Any) -> Any:
    """Samples of the first certificate after a stage of this length."""
    return np.maximum(FEWEST, length // SHARE)


def _numbered(checkpoint: Any, stage: int, row: int | None) -> Any:
    """A file of its own for each stage and group of rows; a finished stage is read back from it."""
    if checkpoint is None:
        return None
    given = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    return Checkpoint(f"{given.path}.{stage}" + ("" if row is None else f".{row}"), given.seconds)
