"""Any method with fixed coefficients, run from its step table, and the H-dual of a method."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.method import Method, State
from dualanchor.core.types import Array
from dualanchor.methods._bases import Batched
from dualanchor.theory import step_tables


@dataclass(frozen=True, repr=False)
class StepTable(Batched):
    r"""The method with a given lower-triangular table of step sizes.

    For methods that exist only as a table: H-duals, tables found by optimisation. Yoon, Kim, Suh, Ryu 2024.

    .. math:: x_{k+1} = x_k - \alpha \sum_{j=0}^{k} H_{kj} F_{B_j}(x_j), \qquad k = 0, \dots, n-1

    Guarantee: none known for a table as such.

    Parameters
    ----------
    step_size : float, :math:`\alpha`, which scales the whole table
    table : array (n, n) or nested sequence, H, lower triangular; the method takes n steps
    batch_size : int, Schedule or list of int, :math:`B_k`, samples of step k

    Notes
    -----
    All past values are stored: the state has n + 1 arrays of the size of x, and step k costs k + 1 passes over one. If
    a method has a recurrence, use that.

    Examples
    --------
    >>> import dualanchor as da
    >>> method = da.StepTable(1.0, [[0.5, 0.0], [-1 / 6, 2 / 3]], batch_size=10)  # OHM
    >>> da.solve(da.problems.affine(sigma=0.1), method).nfev
    20
    """

    step_size: Any
    table: Any
    batch_size: Any = 1

    id = "step-table"
    title = "A method given by its step table"
    citation = "h-duality"
    listed = compared = anytime = False

    def __post_init__(self) -> None:
        rule = "StepTable: table must be a square array of finite numbers, zero above its diagonal"
        remedy = "Use theory.step_table(method), or rows of equal length that end with zeros"
        try:
            table = np.array(self.table, dtype=float)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(rule, f"a {type(self.table).__name__}: {error}", remedy) from None
        if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
            raise ArgumentError(rule, f"shape {table.shape}", remedy)
        if (wrong := np.argwhere(~np.isfinite(table) | (np.triu(table, 1) != 0))).size:
            k, j = wrong[0]
            raise ArgumentError(rule, f"{table[k, j]} in row {k}, column {j}", remedy)
        object.__setattr__(self, "table", tuple(map(tuple, table.tolist())))  # an array would be a column of rows
        super().__post_init__()

    def __repr__(self) -> str:
        n = len(self.table)
        return f"StepTable(step_size={self.step_size}, table=<{n} x {n}>, batch_size={self.batch_size})"

    @cached_property
    def horizon(self) -> int:
        """One more than the rows of the table."""
        return 1 + len(self.table)

    def init(self, x0: Array) -> State:
        values = {f"F{j}": arrays.zeros_like(x0) for j in range(len(self.table))}
        return State(**vars(super().init(x0)), **values)

    def update(self, k: int, s: State, G: Array) -> None:
        alpha, values = self.step_size, vars(s)
        values[f"F{k}"] = arrays.assign(values[f"F{k}"], G)
        for j, h in enumerate(self.table[k][: k + 1]):
            if h:
                s.x -= alpha * h * values[f"F{j}"]


def dual(method: Method, horizon: int | None = None) -> StepTable:
    r"""The H-dual of a linear method: the method whose step table is reflected in the anti-diagonal.

    On an affine F without noise both end at the same point; errors of samples travel differently. The dual of `OHM` is
    `DualOHM`, that of `FEG` is `DualFEG`, and the dual of the dual is the method. Yoon, Kim, Suh, Ryu 2024.

    Parameters
    ----------
    method : Method with fixed coefficients and fresh batches, as for `theory.step_table`
    horizon : int, optional; the dual is that of the first horizon - 1 steps. By default the method's own

    Returns
    -------
    StepTable with one step per evaluation of the method and the method's batch sizes in the same order

    Examples
    --------
    >>> import dualanchor as da
    >>> problem = da.problems.affine(sigma=0.1)
    >>> by_table = da.solve(problem, da.dual(da.OHM(step_size=1.0, horizon=20)))
    >>> by_recurrence = da.solve(problem, da.DualOHM(step_size=1.0, horizon=20))
    >>> bool(abs(by_table.x - by_recurrence.x).max() < 1e-12)
    True
    """
    table, sizes = step_tables.read(method, horizon)
    batch_size = sizes[0] if len(set(sizes)) == 1 else sizes
    return StepTable(method.step_size, step_tables.anti_transpose(table), batch_size)
