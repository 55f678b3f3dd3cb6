"""An accuracy without constants: stages of the untuned default, each judged on fresh samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualanchor.advise.certify import Certificate, certificate_from_session
from dualanchor.core.oracle import Oracle, Session
from dualanchor.core.problem import Problem
from dualanchor.core.result import History, Result, Status
from dualanchor.core.streams import Purpose, Streams
from dualanchor.core.types import Array
from dualanchor.front.ask import Ask
from dualanchor.methods.auto import LONG, Auto
from dualanchor.run.checkpoint import Checkpoint
from dualanchor.run.solve import solve

FIRST = 256  # samples of the first stage
SHARE = 4  # a stage's first certificate takes one sample for so many of the stage
_STAGE = 1 << 32  # stage j of replication r reads the streams of replication j * this + r


class Certified(NamedTuple):
    """What came out, its certificate, and in which sense eps was delivered."""

    result: Result
    certificate: Certificate
    sense: str


def until_certified(
    oracle: Oracle, x0: Array, *, eps: float, step: float, confidence: float, most: int, ask: Ask
) -> Certified:
    """Run stages of growing length, each from where the one before ended, until an upper bound is at most eps.

    The failure probability is split over the certificates of a row, the i-th gets 1/(i(i+1)) of it, so that none of
    them is wrong with the overall confidence. Every stage and every certificate has fresh samples of its own.
    """
    rows = x0.shape[0]
    run = _Rows(x0, eps, 1 - confidence)
    length, stage = FIRST, 0
    while run.active.size:
        here = run.active
        length = int(min(length, max(32, (most - run.spent[here].max()) * SHARE // (SHARE + 1))))
        if stage and run.spent[here].max() + length + length // SHARE > most:
            break
        several = max(1, length // LONG)
        result = solve(
            Problem(oracle, x0[0], name=ask.door),
            Auto(step, max(1, length // several), several),
            seed=ask.seed,
            reps=(stage * _STAGE + here).tolist(),
            x0=run.x[here],
            record=0,
            check=False,
            progress=ask.progress,
            checkpoint=_numbered(ask.checkpoint, stage),
        )
        run.after(here, result)
        if any(one is Status.INTERRUPTED for one in result.status):
            run.status[here] = Status.INTERRUPTED
            break
        if ask.callback is not None and ask.callback(run.x[0] if rows == 1 else run.x):
            run.status[here] = Status.CALLBACK
            break
        run.judge(oracle, ask.seed, stage, here, max(64, length // SHARE), most)
        length, stage = int(length * run.growth()), stage + 1
    return run.outcome(ask, confidence)


class _Rows:
    """Where each replication stands."""

    def __init__(self, x0: Array, eps: float, delta: float) -> None:
        rows = x0.shape[0]
        self.x, self.best, self.eps, self.delta = x0.copy(), x0.copy(), eps, delta
        self.upper, self.residual, self.squared = (np.full(rows, np.inf) for _ in range(3))
        self.sigma, self.width = np.full(rows, np.nan), np.full(rows, np.inf)
        self.level, self.used = np.full(rows, np.nan), np.zeros(rows, int)
        self.spent, self.nit, self.tests = (np.zeros(rows, int) for _ in range(3))
        self.last = np.full(rows, np.inf)  # estimate after the latest stage
        self.status = np.full(rows, Status.BUDGET, dtype=object)
        self.lines: list[tuple[Array, Array, Array, Array]] = []

    @property
    def active(self) -> Array:
        """Rows that have neither succeeded nor diverged."""
        return np.flatnonzero(self.status == Status.BUDGET)

    def after(self, here: Array, result: Result) -> None:
        self.spent[here] += result.nfev
        self.nit[here] += result.nit
        gone = np.array([one is Status.DIVERGED for one in result.status])
        self.status[here[gone]] = Status.DIVERGED
        self.x[here[~gone]] = result.x[~gone]

    def judge(self, oracle: Oracle, seed: int, stage: int, here: Array, samples: int, most: int) -> None:
        """Certify each row on fresh samples, and once more with as many as it seems to take where that is few."""
        here = here[self.status[here] == Status.BUDGET]
        self._certify(oracle, seed, 2 * stage, here, samples)
        open_rows = here[self.status[here] == Status.BUDGET]
        self.lines.append((here, self.nit[here], self.spent[here], self.last[here]))
        gap, width = self.eps - self.last[open_rows], self.width[open_rows]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # widths fall like one over the root
            needed = 1.3 * samples * (width / np.where(gap > 0.2 * self.eps, gap, np.nan)) ** 2
        worth = np.isfinite(needed) & (needed <= 6 * samples * SHARE) & (self.spent[open_rows] + 1.25 * needed <= most)
        counts = np.ceil(1.25 ** np.ceil(np.log(np.maximum(needed[worth], samples)) / np.log(1.25))).astype(int)
        for count in np.unique(counts):  # rows that need about as many are certified together
            self._certify(oracle, seed, 2 * stage + 1, open_rows[worth][counts == count], int(count))

    def _certify(self, oracle: Oracle, seed: int, number: int, rows: Array, samples: int) -> None:
        if not rows.size:
            return
        self.tests[rows] += 1
        tests = int(self.tests[rows].max())
        level = 1 - self.delta / (tests * (tests + 1))
        streams = Streams(seed, number * _STAGE + rows, Purpose.CERTIFICATE, self.x.shape[1], self.x.dtype)
        made = certificate_from_session(Session(oracle, streams), self.x[rows], samples, confidence=level)
        self.spent[rows] += made.samples
        self.last[rows], self.sigma[rows], self.width[rows] = made.residual, made.sigma, made.upper - made.residual
        better = rows[made.upper < self.upper[rows]]
        picked = np.isin(rows, better)
        self.best[better], self.upper[better] = self.x[better], made.upper[picked]
        self.residual[better], self.squared[better] = made.residual[picked], made.squared[picked]
        self.level[better], self.used[better] = level, made.samples
        self.status[rows[made.upper <= self.eps]] = Status.TARGET

    def growth(self) -> float:
        """How much longer the next stage is: errors fall at best like one over the root of the samples."""
        if not self.active.size:
            return 1.0
        ratio = float(np.median(self.last[self.active])) / (0.6 * self.eps)
        return float(np.clip(ratio**2, 2.0, 4.0)) if np.isfinite(ratio) else 2.0

    def outcome(self, ask: Ask, confidence: float) -> Certified:
        single = ask.reps == 1
        done = self.status == Status.TARGET
        certificate = Certificate(
            residual=float(self.residual[0]) if single else self.residual,
            upper=float(self.upper[0]) if single else self.upper,
            squared=float(self.squared[0]) if single else self.squared,
            sigma=float(self.sigma[0]) if single else self.sigma,
            confidence=confidence,
            samples=int(self.used.max()),
            groups=32,
            rule="min",
            notes=("the confidence is that of all certificates made on the way together",),
        )
        if done.all():
            sense = f"|F(x)| <= {self.eps:g} with confidence {confidence:g}, by certificate"
        else:
            worst = float(np.max(self.upper[~done]))
            more = (
                ""
                if not np.isfinite(worst)
                else (f"; about {max(2.0, (worst / self.eps) ** 2):.2g} times the samples would be needed")
            )
            sense = f"not reached: |F(x)| <= {worst:.4g} with confidence {confidence:g} is what is certified{more}"
        columns = [np.concatenate(parts) if parts else np.zeros(0) for parts in zip(*self.lines, strict=True)] or [
            np.zeros(0)
        ] * 4
        history = History(
            row=columns[0].astype(int),
            k=columns[1].astype(int),
            draws=columns[2].astype(int),
            evals=columns[2].astype(int),
            residual=columns[3],
        )

        def one(values: Any) -> Any:
            return values[0].item() if single else values

        result = Result(
            x=self.best[0] if single else self.best,
            success=one(done),
            status=self.status[0] if single else self.status,
            nit=one(self.nit),
            nfev=one(self.spent),
            draws=one(self.spent),
            residual=None,
            residual_kind=None,
            history=history,
            state={"x": self.best},
            problem={"name": ask.door, "dimension": self.x.shape[1]},
            method={"id": "auto", "title": Auto.title, "citation": Auto.citation, "anytime": True, "parameters": {}},
            seed=ask.seed,
        )
        return Certified(result, certificate, sense)


def _numbered(checkpoint: Any, stage: int) -> Any:
    """A file of its own for each stage; a finished stage is read back from it."""
    if checkpoint is None:
        return None
    given = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    return Checkpoint(f"{given.path}.{stage}", given.seconds)
