"""Functions that are written down and compiled do what the same lines of Python do."""

import ctypes

import numpy as np
import pytest

pytest.importorskip("llvmlite")
from dualanchor.fast.code import COUNT, COUNTS, NUMBERS, SINGLES, Function


def call(f, *given):
    """Compile a function and call it with arrays and whole numbers."""
    kinds = [ctypes.c_int64 if isinstance(one, int) else ctypes.c_void_p for one in given]
    values = [one if isinstance(one, int) else one.ctypes.data for one in given]
    ctypes.CFUNCTYPE(None, *kinds)(f.address())(*values)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 37, 1000])
def test_arithmetic_is_numpy_s_to_the_last_bit(n):
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, n))
    expected = 2.0 - (x * y - x / (y + 3.0)) + (-x) * 0.1
    f = Function("arithmetic", NUMBERS, NUMBERS, COUNT)
    xs, ys, count = f.given
    with f.loop(0, count) as i:
        ys[i] = 2.0 - (xs[i] * ys[i] - xs[i] / (ys[i] + 3.0)) + (-xs[i]) * 0.1
    call(f, x, y, n)
    np.testing.assert_array_equal(y, expected)


def test_single_precision_rounds_at_every_operation():
    x = np.random.default_rng(0).standard_normal(101).astype(np.float32)
    expected = np.float32(0.1) * x + np.float32(1 / 3)
    c = np.array([0.1, 1 / 3])
    f = Function("single", NUMBERS, SINGLES, COUNT)
    cs, xs, count = f.given
    with f.loop(0, count) as i:
        xs[i] = f.single(cs[0]) * xs[i] + f.single(cs[1])
    call(f, c, x, 101)
    np.testing.assert_array_equal(x, expected)


def test_a_loop_is_left_where_a_condition_fails():
    x, found = np.array([1.0, 2.0, np.nan, 3.0]), np.array([-1])
    f = Function("first", NUMBERS, COUNTS, COUNT)
    xs, where, count = f.given
    with f.loop(0, count) as i, f.unless(xs[i] < np.inf):
        where[0] = i
        f.leave()
    call(f, x, found, 4)
    assert found[0] == 2


def test_branches_and_variables():
    x, sums = np.arange(10.0), np.zeros(2)
    f = Function("sums", NUMBERS, NUMBERS, COUNT)
    xs, out, count = f.given
    total = f.variables(NUMBERS.pointee, 0.0, 0.0)
    with f.loop(0, count) as i, f.branches(xs[i] < 5.0) as (below, above):
        with below:
            total[0] = total[0] + xs[i]
        with above:
            total[1] = total[1].plus_in_any_order(xs[i])
    out[0], out[1] = total[0], total[1]
    call(f, x, sums, 10)
    assert sums.tolist() == [10.0, 35.0]
