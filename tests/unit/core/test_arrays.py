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
