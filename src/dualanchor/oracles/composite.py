"""Fixed points and constraints as roots: oracles that wrap another one."""

from collections.abc import Callable
from typing import Any

from dualanchor.core import check
from dualanchor.core.errors import ArgumentTypeError
from dualanchor.core.oracle import Batch, Oracle, WrappedOracle
from dualanchor.core.session import Session, resolved
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array, IntArray

_SHORT = 1e-8  # relative to the step: the resolvent of such a short step is nearly the projection onto dom G


class FixedPoint(WrappedOracle):
    """F = I - T for an oracle of T."""

    pure = True

    def mean(self, x: Array, batch: Batch) -> Array:
        return x - self.inner.mean(x, batch)

    def component_values(self, x: Array, indices: IntArray) -> Array:
        return x - self.inner.component_values(x, indices)

    def operator(self, x: Array) -> Array | None:
        value = self.inner.operator(x)
        return None if value is None else x - value

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "of": self.inner.describe()}


class Regularised(WrappedOracle):
    """F(x) + delta (x - centre) for an oracle of F; centre is (d,)."""

    pure = True

    def __init__(self, oracle: Oracle, delta: float, centre: Array) -> None:
        super().__init__(oracle)
        self.delta = delta
        self.centre = centre
        self.rowwise = oracle.rowwise

    def mean(self, x: Array, batch: Batch) -> Array:
        return self.inner.mean(x, batch) + self.delta * (x - self.centre)

    def operator(self, x: Array) -> Array | None:
        value = self.inner.operator(x)
        return None if value is None else value + self.delta * (x - self.centre)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "of": self.inner.describe(), "delta": self.delta}


class Composite(WrappedOracle):
    r"""The inclusion :math:`0 \in F(x) + G(x)` as a root-finding problem in :math:`z`.

    .. math:: \tilde F_B(z) = \frac{z - Jz}{\alpha} + F_B(Jz), \qquad J = (I + \alpha G)^{-1}.

    F is sampled only at :math:`x = Jz`, in the domain of G; batches and noise are those of the oracle of F. If F is
    1/L-cocoercive in expectation there and :math:`\alpha \le 2/L`, then :math:`\tilde F` is
    :math:`\alpha/2`-cocoercive in expectation, so a method may take steps up to :math:`\alpha`. It vanishes at
    :math:`z_\star = x_\star - \alpha F(x_\star)`; elsewhere it is the KKT residual :math:`F(x) + g`,
    :math:`g = (z - x)/\alpha \in G(x)`. The solution is x, not z.

    Parameters
    ----------
    oracle : Oracle, samples of F
    prox : callable
        `prox(z, step)`, :math:`J` for all rows of z, (rows, d): one of `dualanchor.prox`, or the resolvent of any
        other maximal monotone G, such as a skew matrix.
    step_size : float, :math:`\alpha`, at most 2/L

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> from dualanchor.oracles.composite import Composite
    >>> F = da.AdditiveNoise(lambda x: x - np.array([2.0, 0.5]), sigma=0.1)
    >>> constrained = Composite(F, da.prox.box(0, 1), step_size=1.0)
    >>> z = np.array([[2.0, 0.5]])
    >>> constrained.primal(z), constrained.operator(z)
    (array([[1. , 0.5]]), array([[0., 0.]]))
    """

    pure = True

    def __init__(self, oracle: Oracle, prox: Callable[[Array, Any], Any], step_size: float) -> None:
        if not isinstance(oracle, Oracle):
            remedy = "Wrap a function in Sampler, AdditiveNoise or FiniteSum"
            raise ArgumentTypeError("Composite: oracle must be an Oracle", type(oracle).__name__, remedy)
        super().__init__(oracle)
        check.function(prox, "Composite: prox", "prox(z, step)")
        self.step_size = check.number(step_size, "Composite: step_size", positive=True, remedy="Use 2/L or less")
        self._prox = prox
        self.rowwise = oracle.rowwise and getattr(prox, "rowwise", False)

    def mean(self, z: Array, batch: Batch) -> Array:
        x = self.primal(z)
        return (z - x) / self.step_size + self.inner.mean(x, batch)

    def operator(self, z: Array) -> Array | None:
        x = self.primal(z)
        value = self.inner.operator(x)
        return None if value is None else (z - x) / self.step_size + value

    def primal(self, z: Array) -> Array:
        """The points x = J(z) for z of shape (rows, d)."""
        return resolved(self._prox, z, self.step_size)

    def start(self, x0: Array, streams: Streams, first_batch: int) -> Array:
        r"""The start :math:`z_0 = x_0 - \alpha F_{B_0}(x_0)` for each row, from `first_batch` fresh samples.

        An x0 outside of the domain of G is first projected onto it. No run counts these samples.
        :math:`\mathbb E\|z_0 - z_\star\|^2 \le \|x_0 - x_\star\|^2 + \alpha^2\sigma^2/B_0`.
        """
        x = resolved(self._prox, x0, _SHORT * self.step_size)
        F = Session(self.inner, streams)
        return x - self.step_size * F(x, F.draw(check.count(first_batch, "Composite: first_batch")))

    def is_replayable(self, x: Array, streams: Streams) -> bool:
        return super().is_replayable(self.primal(x), streams)

    def is_noiseless(self, x: Array, streams: Streams) -> bool:
        return super().is_noiseless(self.primal(x), streams)

    def describe(self) -> dict[str, Any]:
        prox: Any = self._prox
        name = getattr(prox, "__qualname__", type(prox).__name__)
        described = prox.describe() if hasattr(prox, "describe") else name
        return {**super().describe(), "oracle": self.inner.describe(), "prox": described, "step_size": self.step_size}
