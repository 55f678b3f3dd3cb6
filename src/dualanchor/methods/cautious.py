"""Segments of plain steps, after each of which their own samples say how long the next ones are to be."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.session import Session
from dualanchor.core.types import Array

CAUTION = 1.5  # steps are at most this times distance travelled / root of the sum of squares seen
FIRST, BLOCK = 16, 16  # the step is updated in each of the first rounds of a run, then once in a block of rounds
OPENING = 4  # rounds whose samples stand for those at the start
GREW, NOISE_GREW = 2.0, 8.0  # times the lowest mean square: back; the first where consecutive samples agree
RARE = 5.0  # rounds, times the mean fourth power over the squared mean square, before samples count as having fallen
MANY = 0.25  # of the samples: so many have grown where they have, and not a few that are rare
AGREE, TURNED = 0.5, -0.7  # correlations of consecutive samples: mostly signal; the step is too long
FORGIVEN = 4.0  # times the lowest: what the mean square may reach next, where noise may have grown
CALM = 1.5  # times the lowest: a point to go back to
DRIFT, LONGER = 2.0, 4.0  # squared distance over the sum of squared steps: steps grow; by how much at most
FALL, BEYOND = 4.0, 1.15  # a fall of the mean square after which the step is fitted; times what is best in mean square
TRIAL, EVERY, FELL, SHORT = 4.0, 8, 0.6, 0.8  # see `_tried`
FALLING = 0.7  # times an earlier mean square: samples still become smaller
MOST = 1e6  # times the first step: where F does not change, x would else go on until only rounding is left
RELAX = 1.1  # the ceiling of a step that was too long, after each segment

WHOLE = ("start", "away", "squares", "longest")
"""What a segment passes on to the next one by itself."""
SUMS = ("energy", "block", "block_before", "updated", "path", "turning", "opening", "large", "fourth")
"""What is 0 at the beginning of a segment, for each row."""


@dataclass(frozen=True)
class CautiousSteps(Method):
    r"""A segment of steps :math:`y \leftarrow y - a\,g` with the mean x of their points.

    The step is :math:`a = \min\{\alpha, 1.5\,r/\sqrt{\sum\|g\|^2}\}`, r the largest distance from the start so far.
    State, for each row: x, y, the `total` of the samples g, the sum of their squares in the present block, in the one
    before and in earlier ones (`block`, `block_before`, `energy`), the first when the step was updated (`updated`), the
    sum of :math:`a^2\|g\|^2` until then (`path`), that of products of consecutive samples (`turning`), how many squares
    are above `bound` (`large`), the sum of their squares (`fourth`), and `opening`, the mean square at first. Of the
    run until this segment began: its start, r (`away`), `squares`, and :math:`\alpha` (`longest`). `offset` counts
    earlier rounds. What can be added up once in a block is: a round should cost no more than a fast sampler.
    """

    step_size: Any
    samples_per_round: int = 1
    offset: int = 0

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Cost(self.samples_per_round, self.samples_per_round)

    def init(self, x0: Array) -> State:
        longest, zeros = arrays.zeros_like(x0[:, :1]) + self.step_size, arrays.zeros_like(x0[:, 0])
        return self.following(x0, State(start=x0, away=zeros, squares=zeros, longest=longest, lowest=zeros))

    @staticmethod
    def following(y: Array, run: State) -> State:
        """The state at the beginning of a segment from y, in a run that has come so far."""
        nothing, zeros = arrays.zeros_like(y), arrays.zeros_like(y[:, 0])
        values = {"x": y, "y": y, "total": nothing, "last": nothing, "step": run.longest}
        values |= dict.fromkeys(SUMS, zeros)
        values |= {name: getattr(run, name) for name in WHOLE} | {"bound": GREW * run.lowest}
        return State(**{name: arrays.copy(value) for name, value in values.items()})

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        G = F.fresh(s.y, self.samples_per_round)
        square, change = arrays.row_products(G, G), s.y - s.x
        change *= 1 / (k + 1)
        s.x += change
        s.total += G
        s.turning = s.turning + arrays.row_products(G, s.last)
        s.large = s.large + (square > s.bound)
        s.fourth = s.fourth + square * square
        if k < OPENING:
            s.opening = s.opening + (square - s.opening) / (k + 1)
        if k % BLOCK == 0:
            s.path, s.energy, s.block_before = path_of(s), s.energy + s.block, s.block
            s.block = s.updated = 0 * square
            self._update_step(s, square)
        elif k + self.offset < FIRST:
            self._update_step(s, square)
        s.block = s.block + square
        s.last = G
        s.y -= s.step * G

    @staticmethod
    def _update_step(s: State, square: Array) -> None:
        xp, longest = arrays.namespace(s.x), s.longest[:, 0]
        s.away = away_of(s)
        s.path, s.updated = path_of(s), s.block
        cautious = CAUTION * s.away / xp.sqrt(s.squares + s.energy + s.block + square + least(s.x.dtype))
        s.step = xp.where((s.away > 0) & (cautious < longest), cautious, longest)[:, None]


def path_of(s: State) -> Array:
    """The sum of squared steps so far."""
    return s.path + s.step[:, 0] ** 2 * (s.block - s.updated)


def away_of(s: State) -> Array:
    """The largest distance from the start so far, at least half that of a random walk with the latest steps.

    Without that, an iterate that has come back to its start by chance, which on a line it often does, would stay there.
    """
    xp, walk = arrays.namespace(s.x), s.step[:, 0] ** 2 * (s.block - s.updated)
    return xp.maximum(s.away, xp.sqrt(xp.maximum(arrays.row_squares(s.y - s.start), walk / 4)))


def completed(s: State, rounds: int) -> State:
    """The state at the end of a segment, all sums up to date, and `recent`: the mean square in its last two blocks."""
    energy, last = s.energy + s.block, rounds - max(0, (rounds - 1) // BLOCK - 1) * BLOCK
    sums = {"energy": energy, "squares": s.squares + energy, "path": path_of(s), "away": away_of(s)}
    return State(**vars(s) | sums | {"recent": (s.block_before + s.block) / last})


def begun(s: State) -> State:
    """What `judge` needs to remember of a run, at first; s is the state at the beginning of its first segment."""
    zeros, infinite = arrays.zeros_like(s.energy), arrays.zeros_like(s.energy) + np.inf
    run = {name: getattr(s, name) for name in (*WHOLE, "y")} | {"safe": s.y, "anchor": s.y, "first": s.longest}
    numbers = (
        "safe_away",
        "safe_squares",
        "path",
        "above",
        "trial",
        "falling",
        "checked",
        "checked_step",
        "peaked",
        "seen",
        "backed",
    )
    values = run | dict.fromkeys(numbers, zeros) | dict.fromkeys(("lowest", "ceiling", "recent", "latest"), infinite)
    return State(**{name: arrays.copy(value) for name, value in values.items()})


def judge(memory: State, s: State, rounds: int, number: int) -> Array:
    r"""After segment `number`, with its `completed` state: where the next one starts and with which step.

    Both are left in the memory; returned is which rows go back.

    With T the mean square of its samples, c the correlation of consecutive ones, and :math:`\rho = \|y_{end} -
    y_{start}\|^2/\sum a^2\|g\|^2`, the first of these that holds:

    - T > 8 times the lowest so far, or 2 times if \|c\| > 1/2: back to the last calm point with a/4. If samples are no
      smaller there at first, the lowest was too low, by chance, and becomes what they are.
    - c < -0.7: a/2.
    - T is a quarter of the largest since the step was last changed: :math:`1.15\,a\,(1 + \rho)/2`, :math:`\rho` over
      all segments since then. :math:`a\,(1 + \rho)/2` is Polyak's step if the end is the root.
    - :math:`\rho > 2`, or half the rounds if \|c\| > 1/2: :math:`a\,(1 + \rho)/2`, at most 4a, and no longer than half
      of a step that was too long.

    A shorter step is also tried now and then, see `_tried`. All are quotients: no units, no tolerances.
    """
    xp = arrays.namespace(s.x)
    one, tiny = arrays.zeros_like(s.energy) + 1, least(s.x.dtype)
    T, step, longest = s.energy / rounds, s.step[:, 0], memory.longest[:, 0]
    lowest = s.opening if number == 0 else memory.lowest
    lowest = xp.where(memory.backed > 0, xp.maximum(lowest, s.opening), lowest)  # at a calm point: it was too low
    signal = abs(s.turning) > AGREE * s.energy
    seen = _seen(memory, s, T, rounds, number)
    many = lowest > 0 if number == 0 else s.large > MANY * rounds
    back = (xp.where(signal, GREW * lowest, NOISE_GREW * lowest) < T) & many
    lowest = xp.where(lowest > 0, lowest, T)
    turned = ~back & (s.turning < TURNED * s.energy)
    memory.path, memory.above = memory.path + s.path, xp.maximum(memory.above, T)
    drift = arrays.row_squares(s.y - memory.y) / (s.path + tiny)
    far = arrays.row_squares(s.y - memory.anchor) / (memory.path + tiny)
    fallen = seen & (memory.above > FALL * T)
    fitted = xp.clip(BEYOND * (1 + far) / 2, 0.5, 2.0) * step
    coherent = xp.where(signal, xp.where(drift > rounds / 2, drift, 0 * one), xp.maximum(drift, far))
    longer = xp.where(coherent > DRIFT, xp.clip((1 + coherent) / 2, 1.0, LONGER), one) * longest
    ceiling = xp.where(back | turned, step / 2, RELAX * memory.ceiling)
    trial, better, again = _tried(memory, s, T, number, ~back & ~turned & (drift < SHORT))
    wanted = xp.where(trial & ~better, TRIAL * longest, xp.where(fallen, fitted, longer))
    wanted = xp.where(back, step / 4, xp.where(turned, step / 2, xp.minimum(wanted, ceiling)))
    wanted = xp.minimum(xp.where(again, wanted / TRIAL, wanted), MOST * memory.first[:, 0])
    changed, calm = fallen | (wanted != longest), ~back & (xp.where(signal, lowest, CALM * lowest) >= T)
    memory.ceiling, memory.longest = ceiling, wanted[:, None]
    memory.path, memory.above = (xp.where(changed, 0 * one, value) for value in (memory.path, memory.above))
    forgiven = xp.maximum(FORGIVEN * lowest, T / 64) if number == 0 else FORGIVEN * lowest
    low = xp.where(seen, xp.minimum(lowest, T), T if number == 0 else lowest)
    memory.lowest = xp.where(back & ~signal, forgiven, low)
    for name, now in (("y", s.y), ("away", s.away), ("squares", s.squares)):
        safe = "safe" if name == "y" else f"safe_{name}"
        where = (back, calm) if name != "y" else (back[:, None], calm[:, None])
        setattr(memory, name, xp.where(where[0], getattr(memory, safe), now))
        setattr(memory, safe, xp.where(where[1], now, getattr(memory, safe)))
    memory.anchor = xp.where(changed[:, None], memory.y, memory.anchor)
    memory.recent = xp.where(back, memory.recent, s.recent)
    memory.backed = xp.where(back, one, 0 * one)
    return back


def _seen(memory: State, s: State, T: Array, rounds: int, number: int) -> Array:
    """Whether a segment is long enough to see whether samples have become smaller: not where large ones are rare.

    `peaked` is the mean fourth power over the squared mean square, a mean over segments within which samples have not
    become much smaller; 3 at first, as for a Gaussian number.
    """
    xp = arrays.namespace(T)
    peaked, before = s.fourth * rounds / (s.energy**2 + least(T.dtype)), memory.peaked if number else 0 * T + 3
    level = (s.opening < 2 * T) & (s.energy**2 > 0)
    memory.peaked = xp.where(level, before + (peaked - before) / min(8, abs(number) + 1), before)
    seen = RARE * memory.peaked < rounds
    memory.seen = xp.where(seen, 0 * T + 1, 0 * T)
    return seen


def _tried(memory: State, s: State, T: Array, number: int, steady: Array) -> tuple[Array, Array, Array]:
    """Whether the segment was a trial, whether it was a better one, and whether the next one is a trial.

    Every eighth segment has a quarter of the step, if iterates do not progress (`steady`) and samples have not become
    smaller by more than the step has. The shorter step stays, and another trial follows, if samples become
    smaller: their spread then comes from the steps.
    """
    xp = arrays.namespace(T)
    trial, better = memory.trial > 0, s.recent < FELL * memory.latest
    due, step = number % EVERY == EVERY // 2, s.step[:, 0]
    by_itself = T * memory.checked_step < FALLING * memory.checked * step
    again = steady & xp.where(trial, better, ~by_itself & due)
    memory.falling = xp.where((FALLING * memory.checked > T) | again, 0 * T + 1, 0 * T)
    memory.checked, memory.checked_step = (T, step) if due else (memory.checked, memory.checked_step)
    memory.trial, memory.latest = xp.where(again, 0 * T + 1, 0 * T), xp.where(trial & ~better, memory.latest, T)
    return trial, better, again


def restart_caution(memory: State, rows: Array) -> None:
    """Measure distances and squares of some rows (a mask) from where they stand."""
    xp = arrays.namespace(memory.y)
    memory.start = xp.where(rows[:, None], memory.y, memory.start)
    for name in ("away", "squares", "safe_away", "safe_squares"):
        setattr(memory, name, xp.where(rows, 0 * memory.away, getattr(memory, name)))


@cache
def least(dtype: Any) -> float:
    """A number that makes 0 divisible and changes no other."""
    return float(np.finfo(arrays.numpy_dtype(dtype)).tiny)


@cache
def precision(dtype: Any) -> float:
    """The relative distance of neighbouring numbers."""
    return float(np.finfo(arrays.numpy_dtype(dtype)).eps)
