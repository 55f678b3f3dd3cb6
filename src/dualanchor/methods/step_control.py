"""How the untuned default changes its step after each segment, by what the samples of the segment say."""

from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import State
from dualanchor.core.types import Array
from dualanchor.methods.cautious import RUN, Segment, smallest

AGREE = 0.5  # correlation of consecutive samples from which on they are mostly signal, not noise
OVERSHOT = -0.7  # correlation at which iterates jump to and fro across the root
GREW = 2.0  # times the lowest mean square: samples that agree have grown
NOISE_GREW = 8.0  # the same for samples that are mostly noise
LARGE_SHARE = 0.25  # of the samples must have grown: a few rare ones do not count
THROWN = 1e3  # times the lowest mean square: here a few do count, if they have moved the iterate ...
FAR = 16.0  # ... this many times as far as it has ever been from its origin
FORGIVEN = 4.0  # times the lowest mean square: its new value where noise, not the step, may have grown
CALM = 1.5  # times the lowest mean square: below that, the iterate is a point to go back to
DRIFT = 2.0  # squared distance over the sum of squared steps, from which on the step is too short
MAX_GROWTH = 4.0  # of the step, per segment
HELD = 1e3  # times the step: more than that is asked for in vain where the distance travelled holds the step
FALL = 4.0  # times: a fall of the mean square after which the step is fitted
FITTED = 1.15  # times the step that would have been best
TRIAL = 4.0  # times shorter: a step that is tried
TRIAL_PERIOD = 8  # segments
TRIAL_DRIFT = 0.8  # a trial is made where iterates have less drift than that
TRIAL_GAIN = 0.6  # of the mean square before: the shorter step stays
FALLING = 0.7  # of an earlier mean square: samples still become smaller
FORGETS = 0.7  # mean drift below which iterates forget where they were within a segment; that of a random walk is 1
RESOLVED = 5.0  # times the kurtosis: rounds in which a fall of the mean square can be seen
MAX_STEP = 1e6  # times the first step: where F is constant, steps would grow until only rounding is left
RETREAT = 16.0  # times shorter: the step after a segment that diverged
RELAX, RELAX_DRIFT = 1.1, 2.0  # growth of the ceiling per segment; where noisy iterates drift all the same


def begin(s: State) -> State:
    r"""The memory of a run whose first segment has state s.

    - `y`, where the next segment starts, and the fields of RUN.
    - `safe_y`, `safe_distance`, `safe_squares`: the last calm point.
    - `fit_y`, `fit_path`, `fit_square`: where the step was last changed, path and largest mean square since then.
    - `lowest`, `recent`, `latest`, `before_latest`: the lowest mean square of all segments, that of the last two
      blocks, that of the last segment that was no failed trial, and that of one before it. `checked`, `checked_step`:
      mean square and step when a trial was last due.
    - `ceiling` limits the step; `last_step` is the one taken last, shortened if it was too long; `kurtosis` is that of
      samples, `mean_drift` a mean of :math:`\rho` (see `adjust`) over about eight segments.
    - `trial`, `falling`, `resolved`, `went_back`: 1 where the next segment is a trial, samples become smaller, a fall
      of the mean square could be seen, and the row went back to its calm point.
    """
    zeros = arrays.zeros_like(s.squares)
    vectors = {"y": s.y, "safe_y": s.y, "fit_y": s.y, "first_step": s.longest[:, 0]}
    run = {name: getattr(s, name) for name in RUN}
    zero_at_first = (
        "safe_distance", "safe_squares", "fit_path", "fit_square", "checked", "checked_step", "last_step",
        "trial", "falling", "resolved", "went_back",
    )  # fmt: skip
    infinite_at_first = ("lowest", "recent", "latest", "before_latest", "ceiling")
    values = vectors | run | dict.fromkeys(zero_at_first, zeros) | dict.fromkeys(infinite_at_first, zeros + np.inf)
    values["kurtosis"] = zeros + 3  # as of Gaussian noise
    values["mean_drift"] = zeros + 1  # as of a random walk
    return State(**{name: arrays.copy(value) for name, value in values.items()})


def adjust(memory: State, segment: Segment, number: int | None) -> Array:
    r"""Decide after segment `number` (None: a later one) where the next one starts, and its longest step.

    Both are written to the memory; returned is a mask of the rows that go back to their last calm point.

    With T the mean square of the samples, c the correlation of consecutive ones, and :math:`\rho` the squared distance
    over the sum of squared steps, the first of these rules that applies:

    1. T > 8 times the lowest so far (2 times if :math:`|c| > 1/2`), in a quarter of the samples, or > 1,000 times in
       any if they have moved the iterate far away: back to the last calm point with a quarter of the step. If samples
       are no smaller there, the lowest was too low by chance, and is corrected.
    2. c < -0.7: half the step.
    3. T < a quarter of the largest since the step was last changed: :math:`1.15\,a\,(1 + \rho)/2`, with :math:`\rho`
       since then. :math:`a\,(1 + \rho)/2` is Polyak's step if the end is the root.
    4. :math:`\rho > 2`, or half the rounds if :math:`|c| > 1/2` (not where large samples are rare):
       :math:`a\,(1 + \rho)/2`, at most 4a, and within a ceiling of half the last step that was too long, which rises
       slowly. The longest step is at most 1,000 times the step that was taken.

    A shorter step is tried now and then, see `_trial`. All are quotients: no units, no tolerances.
    """
    xp = arrays.namespace(segment.mean)
    T, step, longest = segment.mean_square, segment.step, memory.longest[:, 0]
    first = number == 0
    agree = abs(segment.correlation) > AGREE
    resolved = _resolved(memory, segment, number)

    lowest = segment.opening if first else memory.lowest
    lowest = xp.where(memory.went_back > 0, xp.maximum(lowest, segment.opening), lowest)
    spread = lowest > 0 if first else segment.large_share > LARGE_SHARE
    moved = arrays.row_squares(segment.end - memory.y)
    thrown = (THROWN * lowest < T) & (lowest > 0) & (moved > FAR**2 * memory.distance**2)
    back = (xp.where(agree, GREW * lowest, NOISE_GREW * lowest) < T) & (spread | thrown)
    lowest = xp.where(lowest > 0, lowest, T)
    overshot = ~back & (segment.correlation < OVERSHOT)
    too_long = back | overshot

    tiny = smallest(segment.mean.dtype)
    memory.fit_path = memory.fit_path + segment.path
    memory.fit_square = xp.maximum(memory.fit_square, T)
    drift = moved / (segment.path + tiny)
    fit_drift = arrays.row_squares(segment.end - memory.fit_y) / (memory.fit_path + tiny)
    straight = xp.where((drift > segment.rounds / 2) & resolved, drift, 0 * drift)
    coherent = xp.where(agree, straight, xp.maximum(drift, fit_drift))

    fallen = resolved & (memory.fit_square > FALL * T)
    fitted = xp.clip(FITTED * (1 + fit_drift) / 2, 0.5, 2.0) * step
    grown = xp.where(coherent > DRIFT, xp.clip((1 + coherent) / 2, 1.0, MAX_GROWTH), 0 * T + 1) * longest
    relaxed = xp.where((coherent > DRIFT) & ~agree, RELAX_DRIFT * memory.ceiling, RELAX * memory.ceiling)
    ceiling = xp.where(too_long, step / 2, relaxed)
    trial, gained, again = _trial(memory, segment, number, ~too_long & (drift < TRIAL_DRIFT))
    wanted = xp.where(trial & ~gained, TRIAL * longest, xp.where(fallen, fitted, grown))
    wanted = xp.where(back, step / 4, xp.where(overshot, step / 2, xp.minimum(wanted, ceiling)))
    wanted = xp.where(again, xp.minimum(wanted, step) / TRIAL, wanted)
    wanted = xp.minimum(wanted, MAX_STEP * memory.first_step)
    wanted = xp.minimum(wanted, HELD * step)

    memory.ceiling, memory.longest = ceiling, wanted[:, None]
    memory.last_step = xp.where(too_long, wanted, step)
    mean_drift = memory.mean_drift + (xp.minimum(drift, 0 * drift + DRIFT) - memory.mean_drift) / 8
    memory.mean_drift = xp.where(too_long | trial, memory.mean_drift, mean_drift)
    low = xp.where(resolved, xp.minimum(lowest, T), T if first else lowest)
    forgiven = xp.maximum(FORGIVEN * lowest, T / 64) if first else FORGIVEN * lowest
    memory.lowest = xp.where(back & ~agree, forgiven, low)
    calm = ~back & (xp.where(agree, lowest, CALM * lowest) >= T)
    _move(memory, segment, back, calm)
    changed = fallen | (wanted != longest)
    memory.fit_y = xp.where(changed[:, None], memory.y, memory.fit_y)
    memory.fit_path = xp.where(changed, 0 * T, memory.fit_path)
    memory.fit_square = xp.where(changed, 0 * T, memory.fit_square)
    memory.recent = xp.where(back, memory.recent, segment.recent)
    memory.went_back = _as_number(back, T)
    return back


def _move(memory: State, segment: Segment, back: Array, calm: Array) -> None:
    """Set the start of the next segment: the end of this one, or the last calm point, which a calm end becomes."""
    xp = arrays.namespace(segment.mean)
    ends = {"distance": segment.distance, "run_squares": segment.run_squares}
    for name, safe in (("distance", "safe_distance"), ("run_squares", "safe_squares")):
        setattr(memory, name, xp.where(back, getattr(memory, safe), ends[name]))
        setattr(memory, safe, xp.where(calm, ends[name], getattr(memory, safe)))
    memory.y = xp.where(back[:, None], memory.safe_y, segment.end)
    memory.safe_y = xp.where(calm[:, None], segment.end, memory.safe_y)


def _resolved(memory: State, segment: Segment, number: int | None) -> Array:
    """Whether the segment is long enough to show a fall of the mean square: not where large samples are rare.

    The kurtosis of samples decides, a mean over segments within which they have not become much smaller.
    """
    xp, T = arrays.namespace(segment.mean), segment.mean_square
    weight = 1 / (8 if number is None else min(8, number + 1))
    level = (segment.opening < 2 * T) & (T * T > 0)
    change = xp.where(level, weight * (segment.kurtosis - memory.kurtosis), 0 * T)
    memory.kurtosis = memory.kurtosis + change
    resolved = RESOLVED * memory.kurtosis < segment.rounds
    memory.resolved = _as_number(resolved, T)
    return resolved


def _trial(memory: State, segment: Segment, number: int | None, steady: Array) -> tuple[Array, Array, Array]:
    """Whether the segment was the trial of a shorter step, whether samples gained by it, and whether the next is one.

    Every eighth segment has a quarter of the step, if iterates do not progress (`steady`) and samples have not become
    smaller by more than the step has. The shorter step stays, and another trial follows, if samples have become
    smaller than in both segments before: their spread then comes from the steps.
    """
    xp, T, step = arrays.namespace(segment.mean), segment.mean_square, segment.step
    trial = memory.trial > 0
    gained = segment.recent < TRIAL_GAIN * xp.minimum(memory.latest, memory.before_latest)
    due = number is not None and number % TRIAL_PERIOD == TRIAL_PERIOD // 2
    by_itself = T * memory.checked_step < FALLING * memory.checked * step
    again = steady & xp.where(trial, gained, ~by_itself & due)
    memory.falling = _as_number((FALLING * memory.checked > T) | again, T)
    if due:
        memory.checked, memory.checked_step = T, step
    memory.trial = _as_number(again, T)
    memory.before_latest = xp.where(trial, memory.before_latest, memory.latest)
    memory.latest = xp.where(trial & ~gained, memory.latest, T)
    return trial, gained, again


def retreat(memory: State) -> None:
    """After a segment that diverged: back to the last calm point, with much shorter steps."""
    zeros = 0 * memory.distance
    memory.y, memory.distance, memory.run_squares = memory.safe_y, memory.safe_distance, memory.safe_squares
    memory.longest = memory.longest / RETREAT
    memory.ceiling = memory.last_step = memory.longest[:, 0]
    memory.fit_y, memory.fit_path, memory.fit_square = memory.y, zeros, zeros
    memory.trial, memory.went_back = zeros, zeros + 1


def restart_distances(memory: State, rows: Array, T: Array) -> None:
    """Measure distances and squares of some rows (a mask) from where they stand; T is their last mean square.

    The distance starts at the length of one step: from 0, a first sample that happens to be small would stop the row.
    """
    xp = arrays.namespace(memory.y)
    length = memory.last_step * xp.sqrt(T)
    memory.origin = xp.where(rows[:, None], memory.y, memory.origin)
    for name in ("distance", "safe_distance"):
        setattr(memory, name, xp.where(rows, length, getattr(memory, name)))
    for name in ("run_squares", "safe_squares"):
        setattr(memory, name, xp.where(rows, 0 * T, getattr(memory, name)))


def _as_number(mask: Array, like: Any) -> Array:
    """A mask as 0 and 1, as states have them."""
    return arrays.namespace(like).where(mask, 0 * like + 1, 0 * like)
