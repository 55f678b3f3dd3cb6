"""Names for the array types that signatures mention."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""Floating-point rows: iterates are (rows, d), row-wise hyper-parameters (rows, 1)."""

IntArray: TypeAlias = NDArray[np.int64]
"""One integer per row."""

Counts: TypeAlias = "int | IntArray"
"""A count that all rows share, or one per row."""

Rows: TypeAlias = NDArray[Any]
"""A selection of rows: indices or a mask."""
