"""`check_oracle`: test an oracle against the contract that a run relies on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal, assert_raises
from scipy import stats

from dualanchor.checks.report import Report, run_checks
from dualanchor.core.errors import ArgumentError, ArgumentTypeError, DualAnchorError
from dualanchor.core.oracle import Oracle
from dualanchor.core.problem import as_point
from dualanchor.core.session import Session
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array

OFFSETS = np.array([0.0, 0.05, 0.1, 0.25, 0.4])  # of the rows; no rows that are selected have the mean of all
ROWS = len(OFFSETS)
BATCHES, SIZE = 500, 4  # batches of the statistical checks, and their size
RATE = 1e-6  # false-failure rate of each statistical check


def check_oracle(oracle: Oracle, x0: Any = None, *, expected_failures: Mapping[str, str] | None = None) -> Report:
    """Check an oracle against the contract that a run relies on, near a point.

    Three checks are statistical: mean and variance of 500 batches of 4 samples are compared with 2,000 single ones, and
    these with the operator. A correct oracle fails each in about one of a million cases; a bias of 0.3 standard
    deviations in one coordinate of up to 1,000, and twice the variance, are detected with a probability of 99 %.
    Streams are fixed: outcomes repeat. An oracle without noise passes.

    Parameters
    ----------
    oracle : Oracle; it must accept any number of rows, so it may not hold data per row
    x0 : array of shape (d,), optional; where it is sampled; needed unless the oracle declares its dimension
    expected_failures : dict, optional; as in `check_method`

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> report = da.check_oracle(da.AdditiveNoise(lambda x: x, sigma=1.0), np.ones(2))
    """
    if not isinstance(oracle, Oracle):
        raise ArgumentTypeError("check_oracle: oracle must be an Oracle", repr(oracle), "Wrap a function in da.Sampler")
    if x0 is None and oracle.dimension is None:
        raise ArgumentError("check_oracle: x0 must be given", None, "Pass a point where it can be sampled")
    point = as_point(np.ones(oracle.dimension or 1) if x0 is None else x0, "check_oracle: x0", oracle.dimension)
    return run_checks(type(oracle).__name__, [_OracleContract(oracle, np.asarray(point))], expected_failures)


class _OracleContract:
    """The checks of an oracle near a point; each public function is one."""

    def __init__(self, oracle: Oracle, point: Array) -> None:
        self.oracle, self.point = oracle, point
        self.declared = oracle.replayable  # None if the oracle finds out
        scale = np.where(point == 0, np.abs(point).max() or 1.0, point)
        self.x = point + np.multiply.outer(OFFSETS, scale)  # rows near the point, each different

    def _session(self, rows: int = ROWS, seed: int = 0, dtype: Any = np.float64) -> Session:
        return Session(self.oracle, Streams(seed, np.arange(rows), dimension=self.point.size, dtype=dtype))

    def _means(self, size: int, count: int, seed: int) -> Array:
        F = self._session(count, seed)
        return F(np.tile(self.point, (count, 1)), F.draw(size))

    def values_have_the_shape_and_dtype_of_x(self) -> None:
        for dtype in (np.float32, np.float64):
            for rows in (1, ROWS):
                F, x = self._session(rows, dtype=dtype), self.x[:rows].astype(dtype)
                value = F(x, F.draw(3))
                assert value.shape == x.shape, f"a value of shape {value.shape} for x of shape {x.shape}"
                assert value.dtype == dtype, f"a value of {value.dtype} for x of {np.dtype(dtype)}"

    def the_point_is_not_changed(self) -> None:
        x = self.x.copy()
        self.oracle.mean(x, self._session().draw(2))
        assert_array_equal(x, self.x, err_msg="the point was changed")

    def values_at_finite_points_are_finite(self) -> None:
        F = self._session()
        assert np.isfinite(F(self.x, F.draw(3))).all(), "a value at a finite point is not finite"

    def a_batch_can_be_evaluated_again(self) -> None:
        if not self.oracle.is_replayable(self.x[:1], self._session(1).streams):
            assert self.declared is False, (
                "the same streams gave two values at one point: randomness or a state of its own? Draw from the rng "
                "that is passed, or declare replayable=False"
            )
            return
        F, again, x = self._session(), self._session(), self.x
        batch = F.draw(3)
        here, there = F(x, batch).copy(), F(x + 1, batch).copy()
        F(x, F.draw(2))
        assert_array_equal(F(x, batch), here, err_msg="the same batch at the same point")
        assert_array_equal(F(x + 1, batch), there, err_msg="the same batch at another point")
        assert_array_equal(again(x, again.draw(3)), here, err_msg="the same streams again")

    def fresh_batches_differ(self) -> None:
        F = self._session(1)
        replications = self._means(1, 8, 0)
        batches = np.array([F(self.point[None], F.draw(1))[0] for _ in range(8)])
        equal_replications, equal_batches = (len(np.unique(v, axis=0)) == 1 for v in (replications, batches))
        if equal_replications and equal_batches and _agree(replications[:1], batches):
            return  # no noise
        assert not equal_replications, "eight replications see the same sample"
        assert not equal_batches, "eight fresh batches are equal"

    def rows_do_not_depend_on_their_grouping(self) -> None:
        F, mixed, sizes = self._session(), self._session(), np.array([3, 1, 3, 1, 1])
        whole = F(self.x, F.draw(3))
        again = self._session()
        if not np.array_equal(again(self.x, again.draw(3)), whole):
            return  # samples that cannot be repeated
        for rows in (np.array([2]), np.array([4, 0])):
            part = self._session().take(rows)
            within = 0.0 if self.oracle.rowwise else 1e-11
            assert_allclose(part(self.x[rows], part.draw(3)), whole[rows], within, within / 100)
        assert_allclose(mixed(self.x, mixed.draw(sizes))[sizes == 3], whole[sizes == 3], 1e-11, 1e-13)

    def a_selection_of_rows_has_the_operator_of_these_rows(self) -> None:
        rows, whole = np.array([3, 1]), self.oracle.operator(self.x)
        if whole is not None:
            part: Any = self.oracle.take(rows).operator(self.x[rows])
            assert_allclose(part, whole[rows], 1e-11, 1e-13)

    def batches_have_the_mean_of_single_samples(self) -> None:
        _assert_equal_means(self._means(SIZE, BATCHES, 1), self._means(1, BATCHES * SIZE, 2))

    def batches_have_the_variance_of_a_mean(self) -> None:
        """The variance of all coordinates together, and its error from the fourth moments."""
        batches, singles = self._means(SIZE, BATCHES, 4), self._means(1, BATCHES * SIZE, 5)
        if _agree(singles) and _agree(batches):
            return
        squares = [np.square(values - values.mean(axis=0)).sum(axis=1) for values in (SIZE**0.5 * batches, singles)]
        of_batches, of_singles = (float(np.mean(values)) for values in squares)
        errors = [np.std(values) / len(values) ** 0.5 / max(np.mean(values), 1e-300) for values in squares]
        ratio = of_batches / of_singles if of_singles > 0 else np.inf
        allowed = stats.norm.isf(RATE / 2) * np.hypot(*errors)
        assert abs(np.log(max(ratio, 1e-300))) <= allowed, (
            f"means of {SIZE} samples have {ratio:.3g} times the variance"
        )

    def samples_have_the_mean_that_operator_gives(self) -> None:
        value = self.oracle.operator(self.point[None])
        assert (value is not None) == self.oracle.knows_operator, "knows_operator must say whether operator gives F(x)"
        if value is not None:
            _assert_equal_means(self._means(1, BATCHES * SIZE, 3), value)

    def a_full_pass_is_the_operator(self) -> None:
        if self.oracle.components is None:
            assert_raises(DualAnchorError, self.oracle.full_batch)
            return
        batch, value = self.oracle.full_batch(), self.oracle.operator(self.x)
        assert batch.size == self.oracle.components, f"a full pass of size {batch.size}"
        if value is not None:
            assert_allclose(self._session()(self.x, batch), value, 1e-11, 1e-13)


def _agree(*samples: Array) -> bool:
    """Whether samples are all equal, up to rounding."""
    values = np.concatenate(samples)
    return bool(np.ptp(values, axis=0).max() <= 1e-11 * np.abs(values).max())


def _assert_equal_means(samples: Array, others: Array) -> None:
    """A t-test for each coordinate, at a rate of RATE for all together; a single row is taken to be exact."""
    difference = np.abs(samples.mean(axis=0) - others.mean(axis=0))
    variances = [values.var(axis=0, ddof=1) / len(values) for values in (samples, others) if len(values) > 1]
    allowed = stats.t.isf(RATE / (2 * samples.shape[1]), len(samples) - 1) * np.sqrt(sum(variances))
    worst = int(np.argmax(difference - allowed))
    assert difference[worst] <= allowed[worst] + 1e-11 * np.abs(samples).max(), (
        f"means differ by {difference[worst]:.3g} in coordinate {worst}; chance explains {allowed[worst]:.3g}"
    )
