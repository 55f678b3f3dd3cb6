"""PAGE: a large fresh batch with some probability, otherwise a correction of the estimate by a difference."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualanchor.core import arrays
from dualanchor.core.method import Cost, Estimator, State
from dualanchor.core.session import Session
from dualanchor.core.types import Array, Rows


@dataclass(frozen=True)
class PAGE(Estimator):
    r"""Variance reduction by differences along the path (Li et al. 2021; in Halpern's method Cai et al. 2022).

    .. math::
        v_k = \begin{cases} F_{S_1}(x_k) & \text{with probability } p_k = \min\{1, 2/(k+2)\},\\
        v_{k-1} + F_{S_2}(x_k) - F_{S_2}(x_{k-1}) & \text{otherwise,} \end{cases}

    with the same samples :math:`S_2` at both points, so additive noise cancels in the difference.

    Parameters
    ----------
    big_batch : int, :math:`|S_1|`
    small_batch : int, :math:`|S_2|`, each evaluated twice

    Examples
    --------
    >>> import dualanchor as da
    >>> page = da.PAGE(big_batch=16, small_batch=2)
    >>> page.big_batch, page.small_batch
    (16, 2)
    """

    big_batch: Any = 10
    small_batch: Any = 1
    needs: ClassVar[frozenset[str]] = frozenset({"replay"})

    def __post_init__(self) -> None:
        self.require_counts("big_batch", "small_batch")

    def init(self, s: State) -> None:
        s.estimate = arrays.zeros_like(s.x)  # v_{k-1}
        s.previous = arrays.copy(s.x)  # x_{k-1}

    def probability(self, k: Any) -> Any:
        return np.minimum(1.0, 2.0 / (np.asarray(k) + 2.0))

    def cost(self, k: Any, horizon: Any, coin: Any) -> Cost:
        draws = np.where(coin, self.big_batch, self.small_batch)
        return Cost(draws, np.where(coin, self.big_batch, 2 * self.small_batch))

    def estimate(self, k: int, s: State, F: Session, horizon: Any, coin: Rows) -> Array:
        v = arrays.copy(s.estimate)
        tails = ~coin
        if tails.all():
            v += self.difference(F, s.x, s.previous, tails)
        elif coin.all():
            v = arrays.assign(v, self.fresh(F, s.x, coin))
        else:
            fresh, corrected = np.flatnonzero(coin), np.flatnonzero(tails)
            v = arrays.put(v, fresh, self.fresh(F.at(coin), s.x[fresh], coin))
            change = self.difference(F.at(tails), s.x[corrected], s.previous[corrected], tails)
            v = arrays.put(v, corrected, v[corrected] + change)
        s.estimate, s.previous = v, arrays.copy(s.x)
        return v

    def fresh(self, F: Session, x: Array, rows: Rows) -> Array:
        """The estimate from a fresh batch, for the rows whose coin shows heads."""
        return F(x, F.draw(self._size(self.big_batch, rows)))

    def difference(self, F: Session, x: Array, previous: Array, rows: Rows) -> Array:
        """The change of F from the previous point, for the rows whose coin shows tails."""
        batch = F.draw(self._size(self.small_batch, rows))
        return F(x, batch) - F(previous, batch)

    @staticmethod
    def _size(size: Any, rows: Rows) -> Any:
        return int(size) if np.ndim(size) == 0 else np.asarray(size)[rows, 0]
