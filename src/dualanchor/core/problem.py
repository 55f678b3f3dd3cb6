"""Problems: an oracle, a start, and what is known about them."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dualanchor.core import arrays, check
from dualanchor.core.errors import ArgumentError, ArgumentTypeError
from dualanchor.core.oracle import Oracle, require_dimension
from dualanchor.core.streams import Streams
from dualanchor.core.types import Array


@dataclass(frozen=True)
class Constants:
    """Constants of an operator and its noise; None where unknown.

    F is 1/L-cocoercive, in expectation for one sample (Assumption 3.2), mu-strongly monotone and M-Lipschitz; the
    variance of one sample is at most sigma squared (Assumption 3.1); D is the (root mean square) distance to a root.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.Constants(L=5.0, sigma=1.5).L
    5.0
    """

    L: float | None = None
    mu: float = 0.0
    M: float | None = None
    sigma: float | None = None
    D: float | None = None

    def __post_init__(self) -> None:
        if self.mu is None:
            object.__setattr__(self, "mu", 0.0)
        for name, value in asdict(self).items():
            if value is not None:
                remedy = f"Use a float, or leave {name} out if unknown"
                check.number(value, f"Constants: {name}", positive=name in ("L", "M"), remedy=remedy)
        if self.L is not None and self.mu > self.L:
            rule = "Constants: mu must be at most L, since 1/L-cocoercive operators are L-Lipschitz"
            raise ArgumentError(rule, f"mu = {self.mu}, L = {self.L}", "Check which of the two is right")


class Instance(NamedTuple):
    """A problem with its random parts drawn: the oracle, and start and root (rows, d), one row per replication."""

    oracle: Oracle
    x0: Array
    root: Array | None


class Problem:
    """A root-finding problem: find x with F(x) = 0 from samples of F.

    Parameters
    ----------
    oracle : Oracle, what is sampled
    x0 : array of shape (d,), the start: numbers, or an array of NumPy, PyTorch, JAX or CuPy, whose library runs use
    constants : Constants, optional; those that are known
    root : array of shape (d,), optional; a known root
    name : str, shown in results
    step_size : float, optional; the default step of methods, 1/L where L is known

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> oracle = da.AdditiveNoise(lambda x: 2 * x, sigma=0.1)
    >>> da.Problem(oracle, x0=np.ones(3), constants=da.Constants(L=2.0, sigma=0.1))
    Problem('problem', d=3, L=2, mu=0, sigma=0.1)
    """

    id: ClassVar[str | None] = None
    title: ClassVar[str] = ""
    numpy_only: ClassVar[bool] = False

    def __init__(
        self,
        oracle: Oracle,
        x0: Any,
        *,
        constants: Constants | None = None,
        root: Any = None,
        name: str = "problem",
        step_size: float | None = None,
    ) -> None:
        if not isinstance(oracle, Oracle):
            remedy = "Wrap a function in Sampler, AdditiveNoise or FiniteSum"
            raise ArgumentTypeError("Problem: oracle must be an Oracle", type(oracle).__name__, remedy)
        if constants is not None and not isinstance(constants, Constants):
            remedy = "Use Constants(L=..., sigma=...)"
            raise ArgumentTypeError("Problem: constants must be Constants", repr(constants), remedy)
        self._oracle = oracle
        self._x0 = as_point(x0, "Problem: x0")
        require_dimension(oracle, self.dimension, "Problem: x0")
        self._root = None if root is None else as_point(root, "Problem: root", self.dimension)
        self._constants, self._name, self._step_size = constants or Constants(), name, step_size

    @property
    def name(self) -> str:
        """The name shown in results."""
        return self.id or self._name

    @property
    def dimension(self) -> int:
        """Number d of unknowns."""
        return self._x0.shape[0]

    @property
    def components(self) -> int | None:
        """Number n of components of a finite sum, else None."""
        return self._oracle.components

    @property
    def constants(self) -> Constants:
        """The constants declared for F, its noise and the start."""
        return self._constants

    @property
    def step_size(self) -> float | None:
        """The default step size of methods."""
        return 1.0 / self._constants.L if self._step_size is None and self._constants.L else self._step_size

    def instance(self, streams: Streams) -> Instance:
        """The instance for the rows of the streams, with random parts drawn from them."""
        rows = streams.rows
        root = None if self._root is None else arrays.tile(self._root, rows)
        return Instance(self._oracle, self._x0[None] if rows == 1 else arrays.tile(self._x0, rows), root)

    def describe(self) -> dict[str, Any]:
        """Name and parameters, for results and to distinguish problems."""
        return {"name": self.name, "dimension": self.dimension}

    def __repr__(self) -> str:
        known = [f", {name}={value:g}" for name, value in asdict(self.constants).items() if value is not None]
        return f"{type(self).__name__}({self.name!r}, d={self.dimension}{''.join(known)})"


def as_point(value: Any, owner: str, size: int | None = None, rows: int | None = None) -> Array:
    """A copy of a vector (or, with `rows`, also one vector per row) of finite floats; integers become floats."""
    point = as_reals(value)
    if point is None:
        raise ArgumentTypeError(f"{owner} must be an array of real numbers", _kind(value), "Pass floats")
    shape = tuple(point.shape)
    fits = len(shape) == 1 and shape[0] > 0 and size in (None, shape[0])
    if not fits and (rows is None or shape != (rows, size)):
        allowed = f"({'d' if size is None else size},)" + ("" if rows is None else f" or ({rows}, {size})")
        raise ArgumentError(f"{owner} must have shape {allowed}", f"shape {shape}", "Reshape it")
    if not arrays.finite_rows(point.reshape(-1, shape[-1])).all():
        values = arrays.to_host(point)
        index = np.argwhere(~np.isfinite(values))[0].tolist()
        received = f"{values[tuple(index)]} at index {index if len(index) > 1 else index[0]}"
        raise ArgumentError(f"{owner} must be finite", received, "Start from numbers")
    return point


def as_reals(value: Any) -> Array | None:
    """A copy of an array of real numbers as floats, in its own library; None for anything else.

    Whole numbers become doubles in NumPy, and of the default dtype in other libraries.
    """
    if arrays.is_foreign(value):
        if arrays.is_real(value):
            return arrays.copy(value)
        whole = arrays.namespace(value).isdtype(value.dtype, ("bool", "integral"))
        return arrays.in_default_precision(value) if whole else None
    for part in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(part, np.ma.MaskedArray):
            arrays.require_unmasked(part, ArgumentError)
    try:
        array = np.array(value)
    except ValueError:
        return None
    if array.dtype.kind in "iub" or array.dtype == np.longdouble:  # no library goes beyond double precision
        with np.errstate(over="ignore"):
            array = array.astype(np.float64)
    return array if array.dtype.kind == "f" else None


def _kind(value: Any) -> str:
    """The dtype of an array, or the type of something else, for messages."""
    try:
        dtype = value.dtype if arrays.is_foreign(value) else np.asarray(value).dtype
    except ValueError:
        dtype = np.dtype(object)
    return repr(type(value).__name__) if getattr(dtype, "kind", None) == "O" else f"dtype {dtype}"
