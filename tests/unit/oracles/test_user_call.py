"""What a user's function may return for one row, and what is said of anything else."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.oracles.user_call import user_call

X = np.arange(6.0).reshape(3, 2)
READ_ONLY = np.broadcast_to(4.0, (2,))


@pytest.mark.parametrize(
    "value", [np.full(2, 4.0), READ_ONLY, np.full(2, 4, np.float32), [4, 4], (4.0, 4), np.full(2, 4)]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_real_vectors_are_taken_in_the_precision_of_x(value, dtype):
    x = X.astype(dtype)
    found = user_call(lambda row: value, x, "F")
    assert found.dtype == dtype
    assert found.flags.writeable
    assert not np.shares_memory(found, x)
    np.testing.assert_array_equal(found, np.full((3, 2), 4.0))


def test_rows_in_order_and_into_an_array_that_is_given():
    out = np.zeros_like(X)
    assert user_call(lambda row: X[row] + row, X, "F", out) is out
    np.testing.assert_array_equal(out, X + np.arange(3.0)[:, None])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros(3), r"F must return one vector with the shape of x. Got shape \(3,\) for x of shape \(2,\)"),
        (None, "F must return real numbers. Got None"),
        (1.0, r"Got shape \(\)"),
        (np.zeros(2, complex), "F must return real numbers. Got dtype complex128"),
        (np.zeros(2, bool), "F must return real numbers. Got dtype bool"),
        ([[1.0], [1.0, 2.0]], "F must not raise. Got ValueError"),
        (ZeroDivisionError("a defect"), "F must not raise. Got ZeroDivisionError: a defect. Fix F"),
    ],
)
def test_an_error_says_what_is_wrong_and_in_which_row(value, text):
    def function(row):
        if row == 1 and isinstance(value, Exception):
            raise value
        return value if row == 1 else X[row]

    with pytest.raises(da.errors.OracleError, match=text) as caught:
        user_call(function, X, "F")
    assert caught.value.row == 1


@pytest.mark.parametrize(("x0", "iteration"), [(1.0, 4), (100.0, 0)])
def test_an_error_on_the_way_shows_where_x_had_come(x0, iteration):
    def sample(x, n, rng):
        if abs(x[0]) > 10:
            raise ValueError("outside of the domain")
        return -x

    with pytest.raises(da.errors.OracleError, match=f"at iteration {iteration}, row 0") as caught:
        da.solve(da.Problem(da.Sampler(sample), [x0]), da.SGDA(1.0), budget=20)
    assert caught.value.norm == (16 if iteration else 100)
    assert ("row 0, |x| = 16. " in str(caught.value)) == (iteration > 0)
    assert ("check the sign of F" in str(caught.value)) == (iteration > 0)
