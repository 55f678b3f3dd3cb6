"""Segments of plain steps that sum up what is needed to judge their step size."""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import Cost, Method, State
from dualanchor.core.session import Session
from dualanchor.core.types import Array

CAUTION = 1.5  # steps are at most this times the distance travelled over the root of the sum of squared samples
UNMOVED = 1e-6  # below this fraction of the longest step, that limit only says that the iterate has not moved yet
FIRST = 16  # rounds at the start of a run in which the step is updated every time
BLOCK = 16  # rounds between two updates later on
OPENING = 4  # rounds whose mean square stands for the start of a segment

RUN = ("origin", "distance", "run_squares", "longest")
"""What a segment receives from the run before it, and passes on."""
_SUMS = (
    "squares", "block", "previous_block", "block_at_update", "path",
    "lag_products", "fourth_powers", "opening", "large",
)  # fmt: skip


@dataclass(frozen=True)
class CautiousSteps(Method):
    r"""A segment of steps :math:`y \leftarrow y - a\,g`, with the mean of its points.

    The step is :math:`a = \min\{\alpha, 1.5\,r/\sqrt{\sum\|g\|^2}\}`, where r is the largest distance of y from an
    origin, and the sum is over all samples since distances are measured from there (Ivgi, Hinder and Carmon 2023).
    It is updated in rounds 0, 1, 2, 4, 8 and every 16th: a round should not cost more than a fast sampler.

    State, vectors (rows, d): `x` is the mean of the points up to the last update; `y`, `origin`, `point_sum`,
    `sample_sum`; `last`, the previous sample; `step`, a in each coordinate: arrays of one shape are multiplied faster.
    Numbers (rows, 1): `longest` is :math:`\alpha`.
    Numbers (rows,): `distance` is r; `run_squares` is the sum of squared samples before this segment. Within it,
    `squares`, `previous_block` and `block` are sums of squared samples in finished blocks, in the last of these, and in
    the current one (`block_at_update`: when the step was last updated); `path` is the sum of squared step lengths until
    then; `lag_products` sums products of consecutive samples, `fourth_powers` squares of squares; `opening` is the
    mean square of the first 4 rounds; `large` counts squares above `large_bound`.

    Parameters
    ----------
    step_size : float, the first :math:`\alpha`
    samples_per_round : int
    offset : int, rounds of the run before this segment
    """

    step_size: Any
    samples_per_round: int = 1
    offset: int = 0

    def cost(self, k: Any, s: State | None = None, coin: Any = None) -> Cost:
        return Cost(self.samples_per_round, self.samples_per_round)

    def init(self, x0: Array) -> State:
        zeros = arrays.zeros_like(x0[:, 0])
        longest = arrays.zeros_like(x0[:, :1]) + self.step_size
        run = State(origin=x0, distance=zeros, run_squares=zeros, longest=longest, lowest=zeros)
        return self.following(x0, run)

    @staticmethod
    def following(y: Array, run: State) -> State:
        """The state at the start of a segment from y; `run` has the fields of RUN, and the `lowest` mean square."""
        vectors = arrays.zeros_like(y)
        values = {"x": y, "y": y, "point_sum": vectors, "sample_sum": vectors, "last": vectors}
        values["step"] = vectors + run.longest
        values |= {name: getattr(run, name) for name in RUN}
        values |= dict.fromkeys(_SUMS, arrays.zeros_like(y[:, 0]))
        values["large_bound"] = 2 * run.lowest
        return State(**{name: arrays.copy(value) for name, value in values.items()})

    def step(self, k: int, s: State, F: Session, coin: Any = None) -> None:
        G = F.fresh(s.y, self.samples_per_round)
        square = arrays.row_products(G, G)
        s.point_sum += s.y
        s.sample_sum += G
        s.lag_products = s.lag_products + arrays.row_products(G, s.last)
        s.large = s.large + (square > s.large_bound)
        s.fourth_powers = s.fourth_powers + square * square
        if k < OPENING:
            s.opening = s.opening + (square - s.opening) / (k + 1)
        if k % BLOCK == 0:
            self._update(k, s, square)
            s.squares = s.squares + s.block
            s.previous_block = s.block
            s.block = s.block_at_update = 0 * square
        elif k + self.offset < FIRST or k & (k - 1) == 0:
            self._update(k, s, square)
        s.block = s.block + square
        s.last = G
        s.y -= s.step * G

    @staticmethod
    def _update(k: int, s: State, square: Array) -> None:
        """Update the mean and the step in round k, which has this squared sample."""
        xp, longest = arrays.namespace(s.x), s.longest[:, 0]
        latest_path = _latest_path(s)
        s.x = s.point_sum * (1 / (k + 1))
        s.distance, s.path = _distance(s, latest_path), s.path + latest_path
        s.block_at_update = s.block
        total = s.run_squares + s.squares + s.block + square
        cautious = CAUTION * s.distance / xp.sqrt(total + smallest(s.x.dtype))
        limited = (cautious > UNMOVED * longest) & (cautious < longest)
        s.step = arrays.zeros_like(s.y) + xp.where(limited, cautious, longest)[:, None]


class Segment(NamedTuple):
    """What a finished segment says: points (rows, d), and numbers (rows,).

    `mean` is that of its points, `end` the last one; `correlation` is that of consecutive samples, `recent` the mean
    square in the last two blocks, `kurtosis` the mean fourth power of the samples over their squared mean square.
    """

    rounds: int
    mean: Array
    end: Array
    mean_sample: Array
    step: Array
    mean_square: Array
    opening: Array
    recent: Array
    correlation: Array
    kurtosis: Array
    fourth_powers: Array
    large_share: Array
    path: Array
    distance: Array
    run_squares: Array

    @classmethod
    def of(cls, s: State, rounds: int) -> "Segment":
        """The segment whose state is s after this many rounds."""
        squares, latest_path, tiny = s.squares + s.block, _latest_path(s), smallest(s.x.dtype)
        last_blocks = rounds - max(0, (rounds - 1) // BLOCK - 1) * BLOCK
        return cls(
            rounds=rounds,
            mean=s.point_sum / rounds,
            end=s.y,
            mean_sample=s.sample_sum / rounds,
            step=s.step[:, 0],
            mean_square=squares / rounds,
            opening=s.opening,
            recent=(s.previous_block + s.block) / last_blocks,
            correlation=s.lag_products / (squares + tiny),
            kurtosis=s.fourth_powers * rounds / (squares**2 + tiny),
            fourth_powers=s.fourth_powers,
            large_share=s.large / rounds,
            path=s.path + latest_path,
            distance=_distance(s, latest_path),
            run_squares=s.run_squares + squares,
        )


def _latest_path(s: State) -> Array:
    """The sum of squared step lengths since the step was last updated."""
    return s.step[:, 0] ** 2 * (s.block - s.block_at_update)


def _distance(s: State, latest_path: Array) -> Array:
    """The largest distance from the origin so far, and at least half that of a random walk with the latest steps.

    On a line an iterate is often back at its origin by chance when the step is updated. It must not be stuck there.
    """
    xp = arrays.namespace(s.x)
    now = xp.maximum(arrays.row_squares(s.y - s.origin), latest_path / 4)
    return xp.maximum(s.distance, xp.sqrt(now))


@cache
def smallest(dtype: Any) -> float:
    """The smallest normal number: added to a divisor, it makes 0/0 zero and changes nothing else."""
    return float(np.finfo(arrays.numpy_dtype(dtype)).tiny)
