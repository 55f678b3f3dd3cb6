"""Sums over rows."""

import os
import subprocess
import sys

import numpy as np
import pytest

from dualanchor.core import arrays

LONG = 20_001  # more numbers than OpenBLAS multiplies on one core

NORMS = f"""
import numpy as np
from dualanchor.core import arrays
x = np.random.default_rng(0).standard_normal((3, {LONG}))
print([value.hex() for value in arrays.row_squares(x).tolist() + arrays.row_norms(np.tile(x, 40)).tolist()])
"""


def test_norms_do_not_depend_on_the_number_of_threads() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", NORMS],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for threads in ("1", "2", "3")
    }
    assert len(found) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squares_of_long_rows(dtype: type) -> None:
    x = np.random.default_rng(0).standard_normal((3, LONG)).astype(dtype)
    squares = arrays.row_squares(x)
    assert squares.dtype == dtype
    np.testing.assert_allclose(squares, (x.astype(float) ** 2).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("size", [1, 100, LONG])
def test_nan_is_found_and_infinity_is_not_nan(size: int) -> None:
    x = np.ones((2, size))
    x[0, 0], x[1, -1] = np.inf, -np.inf
    assert not arrays.has_nan(x)
    x[1, -1] = np.nan
    assert arrays.has_nan(x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 7, 100, 8192, LONG])
def test_the_product_of_a_row_has_the_same_bits_alone_and_among_others(d: int, dtype: type) -> None:
    x, y = np.random.default_rng(d).standard_normal((2, 3, d)).astype(dtype)
    together = arrays.row_products(x, y)
    alone = [arrays.row_products(x[i : i + 1], y[i : i + 1]) for i in range(3)]
    np.testing.assert_array_equal(np.concatenate(alone), together)
    assert alone[0].dtype == together.dtype == dtype


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_surely_finite_arrays_have_no_other_number(value: float) -> None:
    x = np.ones((2, 3))
    assert arrays.surely_finite(x)
    x[1, 2] = value
    assert not arrays.surely_finite(x)
