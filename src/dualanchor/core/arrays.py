"""What a run does with arrays beyond arithmetic, for NumPy, PyTorch, JAX and CuPy alike.

A run keeps the library, dtype and device of its start; libraries other than NumPy go through array-api-compat and
array-api-extra. JAX arrays are read-only, so whatever writes returns the array: `s.x = put(s.x, rows, values)`.
"""

import sys
from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np

from dualanchor.core.errors import DualAnchorError, OracleError, missing_extra
from dualanchor.core.types import Array, Rows

LARGE = 1 << 21  # the size of an array from which on avoidable copies are avoided
_PIECE = 1 << 16
_ONE_CORE = 8192  # numbers; OpenBLAS cuts products of vectors longer than 10,000 among all cores, busy or not
_vecdot = getattr(np, "vecdot", None) or (lambda x, y: np.einsum("ij,ij->i", x, y))  # NumPy 1 has none
_NAMESPACES: dict[type, Any] = {np.ndarray: np}


def is_foreign(value: Any) -> bool:
    """Whether a value is an array of another library than NumPy."""
    if isinstance(value, (np.ndarray, np.generic)):
        return False
    return hasattr(value, "__array_namespace__") or _is_torch(value)


def is_on_host(x: Array) -> bool:
    """Whether `to_host` gives a view of the array: one of NumPy, or a tensor of PyTorch in main memory."""
    return isinstance(x, np.ndarray) or (_is_torch(x) and x.device.type == "cpu")


def alike(value: Any, x: Array) -> bool:
    """Whether a value is an array of the library of x."""
    if isinstance(x, np.ndarray):
        return isinstance(value, np.ndarray)
    return is_foreign(value) and namespace(value) is namespace(x)


def namespace(x: Array) -> Any:
    """The functions of the array's library, under the names of the array API standard, which NumPy has too."""
    found = _NAMESPACES.get(type(x))
    if found is None:
        found = _NAMESPACES[type(x)] = np if isinstance(x, np.ndarray) else _other_namespace(x)
    return found


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's name for the dtype of any library; single precision for what NumPy does not have."""
    try:
        found = np.dtype(dtype)
    except TypeError:  # that of PyTorch
        name = str(dtype).rpartition(".")[2]
        found = np.dtype(name if hasattr(np, name) else np.float32)
    return np.dtype(np.float32) if found.kind == "V" else found


def is_real(x: Array) -> bool:
    """Whether the array has real floating-point numbers."""
    if isinstance(x, np.ndarray):
        return np.issubdtype(x.dtype, np.floating)
    return bool(namespace(x).isdtype(x.dtype, "real floating"))


def form(value: Any) -> str:
    """The shape of an array as a phrase; of anything else, its type."""
    if getattr(getattr(value, "dtype", None), "kind", None) == "O" and value.shape == ():
        value = value.item()
    other = "None" if value is None else f"a {type(value).__name__}"
    return f"shape {tuple(value.shape)}" if hasattr(value, "shape") else other


def quiet() -> np.errstate:
    """A context without warnings of overflow: rows that diverge pass through it, and are found and retired."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def copy(x: Array) -> Array:
    """An independent copy; a JAX array, which is read-only, is its own."""
    if isinstance(x, np.ndarray):
        return x.copy()
    return x if is_jax(x) else namespace(x).asarray(_detached(x), copy=True)


def user_copy(x: Array) -> Array:
    """The array for a user's function: a copy, or a read-only view of one that is very long."""
    if not isinstance(x, np.ndarray) or x.size < LARGE:
        return copy(x)
    view = x.view()
    view.flags.writeable = False
    return view


def zeros_like(x: Array) -> Array:
    """Zeros of the same shape, dtype and device, row after row in memory."""
    return np.zeros(x.shape, x.dtype) if isinstance(x, np.ndarray) else namespace(x).zeros_like(x)


def tile(x: Array, rows: int) -> Array:
    """A point (d,) repeated in rows (rows, d), or rows as they are; a copy."""
    if isinstance(x, np.ndarray):
        return np.array(np.broadcast_to(x, (rows, x.shape[-1])), order="C")
    return copy(namespace(x).broadcast_to(x, (rows, x.shape[-1])))


def empty(shape: tuple[int, ...], x: Array) -> Array:
    """An uninitialised array of this shape, with library, dtype and device of x."""
    if isinstance(x, np.ndarray):
        return np.empty(shape, x.dtype)
    return namespace(x).empty(shape, dtype=x.dtype, device=x.device)


def in_double(x: Array) -> Array:
    """A copy in double precision, or in single where the library has no other: JAX outside of its 64-bit mode."""
    if isinstance(x, np.ndarray):
        return x.astype(np.float64)
    known = namespace(x).__array_namespace_info__().dtypes(kind="real floating")
    return namespace(x).astype(x, known.get("float64", known["float32"]))


def concatenate(parts: Sequence[Array]) -> Array:
    """Arrays of one library behind each other."""
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else namespace(parts[0]).concat(parts)


def like(values: Any, x: Array) -> Array:
    """Numbers of the host, or an array of x's library, with dtype and device of x."""
    if isinstance(x, np.ndarray):
        return np.asarray(values, dtype=x.dtype)
    if is_foreign(values):
        return values if values.dtype == x.dtype else namespace(x).astype(values, x.dtype)
    return namespace(x).asarray(values, dtype=x.dtype, device=x.device, copy=True)


def as_library_of(value: Any, x: Array) -> Any:
    """What an oracle returned in the library and precision of x, detached from its graph; unchanged if it cannot be."""
    if type(value) is type(x) and value.dtype == x.dtype and not getattr(value, "requires_grad", False):
        return value
    if not is_foreign(value):
        return value
    if isinstance(x, np.ndarray):
        return to_host(value)
    return like(_detached(value), x) if alike(value, x) and is_real(value) else value


def take(x: Array, rows: Rows | slice) -> Array:
    """A selection of the rows (indices, a mask or a slice)."""
    if isinstance(x, np.ndarray) or isinstance(rows, slice):
        return x[rows]
    return x[np.flatnonzero(rows) if rows.dtype == bool else rows]


def put(x: Array, rows: Any, value: Any) -> Array:
    """The array with these values in some rows (indices or a slice, no mask), in place where it can be written to."""
    if isinstance(x, np.ndarray):
        x[rows] = value
        return x
    return _at(x)[rows].set(value)


def assign(x: Array, value: Any) -> Array:
    """The array with these values, in place where it can be written to."""
    return put(x, slice(None), value if isinstance(x, np.ndarray) else like(value, x))


def row_squares(x: Array) -> Array:
    """The squared norm of each row, to the last bit the same on any number of cores."""
    return row_products(x, x)


def row_products(x: Array, y: Array) -> Array:
    """The inner product of each row of x with that of y, to the last bit the same on any number of cores."""
    if not isinstance(x, np.ndarray):
        return namespace(x).vecdot(x, y)
    if x.shape[1] <= _ONE_CORE:
        return _vecdot(x, y)
    return sum(_vecdot(*pieces) for pieces in zip(_pieces(x), _pieces(y), strict=True))


def add_multiple(target: Array, scale: Any, source: Array) -> None:
    """Add scale * source to rows (rows, d) of NumPy in place, in pieces that fit the cache.

    The source may have fewer rows, (period, d), which are then repeated; scale is a number or (rows, 1).
    """
    rows, d = target.shape
    if type(scale) is float and len(source) in (1, rows) and rows * d <= _PIECE:
        target += scale * source
        return
    each = (-1, len(source), 1)
    scale = scale if np.ndim(scale) == 0 else scale.reshape(each)
    grouped, width = target.reshape(-1, len(source), d), max(1, _PIECE // rows)  # a view: rows are contiguous
    for start in range(0, d, width):
        grouped[..., start : start + width] += scale * source[:, start : start + width]


def minus_multiple(x: Array, scale: Any, y: Array) -> Array:
    """The difference x - scale * y, in x where it can be written to; of tensors, without a temporary for scale * y."""
    if type(scale) is float and hasattr(x, "sub_"):  # a tensor of PyTorch
        subtracted: Array = x.sub_(y, alpha=scale)
        return subtracted
    x -= scale * y
    return x


def to_host(x: Any) -> Any:
    """The array as one of NumPy: the one place where numbers leave a device."""
    if isinstance(x, np.ndarray) or not is_foreign(x):
        if isinstance(x, np.ma.MaskedArray):
            require_unmasked(x, OracleError)
        return np.asarray(x)
    if _is_torch(x):
        x = x.detach()
        return x.to(getattr(sys.modules["torch"], numpy_dtype(x.dtype).name)).cpu().numpy()
    if is_jax(x):
        return np.asarray(sys.modules["jax"].device_get(x), dtype=numpy_dtype(x.dtype))
    return x.get() if hasattr(x, "get") else np.asarray(x)


def require_unmasked(x: Any, error: type[DualAnchorError]) -> None:
    """Raise for a masked array with masked entries: what stands under a mask is no number."""
    if masked := np.count_nonzero(np.ma.getmaskarray(x)):
        raise error("An array must have no masked entries", f"{masked} of {x.size}", "Fill them, as by x.filled(0)")


def row_norms(x: Array) -> Array:
    """The norm of each row, one number each on the host."""
    if isinstance(x, np.ndarray):
        return np.linalg.norm(x, axis=1) if x.size < LARGE else _long_norms(x)
    return to_host(namespace(x).linalg.vector_norm(x, axis=1))


def _long_norms(x: Array) -> Array:
    return np.sqrt(sum(_vecdot(piece, piece).astype(np.float64) for piece in _pieces(x))).astype(x.dtype)


def _pieces(x: Array) -> list[Array]:
    return [x[:, start : start + _ONE_CORE] for start in range(0, x.shape[1], _ONE_CORE)]


def finite_rows(x: Array) -> Array:
    """Which rows have finite numbers only, on the host."""
    if isinstance(x, np.ndarray):
        return np.asarray(np.isfinite(x).all(axis=1))
    xp = namespace(x)
    return to_host(xp.all(xp.isfinite(x), axis=1))


def same(x: Array, y: Array) -> bool:
    """Whether two arrays agree in every number; NaN agrees with NaN."""
    if isinstance(x, np.ndarray):
        return bool((x == y).all()) or np.array_equal(x, y, equal_nan=True)
    xp = namespace(x)
    return x is y or bool(xp.all(x == y)) or bool(xp.all((x == y) | ((x != x) & (y != y))))


def has_nan(x: Array) -> bool:
    """Whether there is NaN among the numbers; one pass on one core, since squares are never minus infinity."""
    if isinstance(x, np.ndarray):
        flat = x.ravel()
        return isnan(flat.min() if flat.size > _ONE_CORE else flat.dot(flat))
    xp = namespace(x)
    return bool(xp.isnan(xp.sum(x * x)))


def snapshot(x: Array) -> Array:
    """What shows later whether x was changed: a copy, or its row sums where a copy would take much memory."""
    return x.sum(axis=1) if isinstance(x, np.ndarray) and x.size >= LARGE else copy(x)


def unchanged_since(x: Array, snapshot: Array) -> bool:
    """Whether x is as it was; if not, and there is a copy, its values are restored."""
    if snapshot.ndim < x.ndim:
        return same(snapshot, x.sum(axis=1))
    if same(snapshot, x):
        return True
    assign(x, snapshot)
    return False


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")  # without the import there are no tensors
    return torch is not None and isinstance(value, torch.Tensor)


def is_jax(value: Any) -> bool:
    """Whether a value is an array of JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def _detached(x: Any) -> Any:
    """The numbers alone, without PyTorch's graph, which would grow through all steps."""
    return x.detach() if getattr(x, "requires_grad", False) else x


def _at(x: Any) -> Any:
    try:
        from array_api_extra import at
    except ImportError:
        raise missing_extra("array-api-extra", "jax" if is_jax(x) else "torch", "A run on other arrays") from None
    return at(x)


def _other_namespace(x: Any) -> Any:
    kind = "torch" if _is_torch(x) else type(x).__module__.partition(".")[0]
    if kind not in ("torch", "cupy"):
        return x.__array_namespace__()
    try:
        from array_api_compat import array_namespace
    except ImportError:
        raise missing_extra("array-api-compat", "torch", f"A run on {kind} arrays") from None
    return array_namespace(x)
