"""Operations on arrays of NumPy, PyTorch, JAX and CuPy alike.

A run keeps the library, dtype and device of its start; arrays of other libraries than NumPy ("foreign" ones) go through
array-api-compat and array-api-extra. JAX arrays are read-only, so a function that writes to an array also returns it:
`s.x = put(s.x, rows, values)`. The "host" is the processor, where NumPy arrays are.
"""

import sys
from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any

import numpy as np

from dualanchor.core.errors import DualAnchorError, OracleError, optional_module
from dualanchor.core.types import Array, Rows

LARGE = 1 << 21  # numbers in an array from which on it is not copied without need
PIECE = 1 << 18  # bytes of each array that are updated at a time, so that they stay in the cache
_ONE_CORE = 8192  # length of vectors up to which OpenBLAS uses one core; on several, sums are rounded differently
_COLUMNS = 32  # into which the rows of a JAX array are folded to be summed
_vecdot = getattr(np, "vecdot", None) or (lambda x, y: (x[:, None] @ y[:, :, None])[:, 0, 0])  # NumPy 1 has no vecdot
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
    """Whether a value is an array of the same library as x."""
    if isinstance(x, np.ndarray):
        return isinstance(value, np.ndarray)
    return is_foreign(value) and namespace(value) is namespace(x)


def namespace(x: Array) -> Any:
    """The module with the functions of the array's library, under the names of the array API standard."""
    module = _NAMESPACES.get(type(x))
    if module is None:
        module = _NAMESPACES[type(x)] = np if isinstance(x, np.ndarray) else _other_namespace(x)
    return module


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype for a dtype of any library; single precision for one that NumPy does not have (bfloat16)."""
    try:
        converted = np.dtype(dtype)
    except TypeError:  # a dtype of PyTorch
        name = str(dtype).rpartition(".")[2]
        converted = np.dtype(name if hasattr(np, name) else np.float32)
    return np.dtype(np.float32) if converted.kind == "V" else converted


def is_real(x: Array) -> bool:
    """Whether the array has real floating-point numbers."""
    if isinstance(x, np.ndarray):
        return np.issubdtype(x.dtype, np.floating)
    return bool(namespace(x).isdtype(x.dtype, "real floating"))


def form(value: Any) -> str:
    """The shape of an array as a phrase for messages; of anything else, its type."""
    if getattr(getattr(value, "dtype", None), "kind", None) == "O" and value.shape == ():
        value = value.item()
    if hasattr(value, "shape"):
        return f"shape {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def quiet() -> np.errstate:
    """A context without NumPy's warnings of overflow and NaN: rows that diverge are found and reported by the run."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def copy(x: Array) -> Array:
    """An independent copy; a JAX array itself, since it is read-only."""
    if isinstance(x, np.ndarray):
        return x.copy()
    return x if is_jax(x) else namespace(x).asarray(_detached(x), copy=True)


def user_copy(x: Array) -> Array:
    """The array to pass to a user's function: a copy, or a read-only view of a large one."""
    if not isinstance(x, np.ndarray) or x.size < LARGE:
        return copy(x)
    view = x.view()
    view.flags.writeable = False
    return view


def zeros_like(x: Array) -> Array:
    """Zeros of the same shape, dtype and device, in C order."""
    return np.zeros(x.shape, x.dtype) if isinstance(x, np.ndarray) else namespace(x).zeros_like(x)


def tile(x: Array, rows: int) -> Array:
    """A point (d,) repeated as (rows, d), or an array (rows, d) as it is; a copy."""
    return copy(namespace(x).broadcast_to(x, (rows, x.shape[-1])))


def empty(shape: tuple[int, ...], x: Array) -> Array:
    """An uninitialised array of this shape, with the library, dtype and device of x."""
    if isinstance(x, np.ndarray):
        return np.empty(shape, x.dtype)
    return namespace(x).empty(shape, dtype=x.dtype, device=_device(x))


def in_double(x: Array) -> Array:
    """A copy in double precision; in single precision for JAX outside of its 64-bit mode."""
    if isinstance(x, np.ndarray):
        return x.astype(np.float64)
    known = namespace(x).__array_namespace_info__().dtypes(kind="real floating")
    return namespace(x).astype(x, known.get("float64", known["float32"]))


def in_default_precision(x: Array) -> Array:
    """A copy of an array of another library than NumPy with that library's default dtype of real numbers."""
    dtype = namespace(x).__array_namespace_info__().default_dtypes()["real floating"]
    return namespace(x).astype(x, dtype)


def concatenate(parts: Sequence[Array]) -> Array:
    """Arrays of one library joined along the first axis."""
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else namespace(parts[0]).concat(parts)


def like(values: Any, x: Array) -> Array:
    """Numbers, a NumPy array or an array of x's library as an array with the library, dtype and device of x."""
    if isinstance(x, np.ndarray):
        return np.asarray(values, dtype=x.dtype)
    if is_foreign(values):
        return values if values.dtype == x.dtype else namespace(x).astype(values, x.dtype)
    return namespace(x).asarray(values, dtype=x.dtype, device=_device(x), copy=True)


def as_library_of(value: Any, x: Array) -> Any:
    """A value with the library and dtype of x, detached from autograd; unchanged if it cannot be converted."""
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
    """The array with these values in some rows (indices or a slice, no mask); in place unless read-only."""
    if isinstance(x, np.ndarray):
        x[rows] = value
        return x
    return _at(x)[rows].set(value)


def assign(x: Array, value: Any) -> Array:
    """The array with all its values replaced; in place unless read-only."""
    return put(x, slice(None), value if isinstance(x, np.ndarray) else like(value, x))


def row_squares(x: Array) -> Array:
    """The squared norm of each row; the same bits on any number of cores."""
    return row_products(x, x)


def row_products(x: Array, y: Array) -> Array:
    """The inner product of each row of x with the same row of y; the same bits on any number of cores."""
    if not isinstance(x, np.ndarray):
        by_columns = x.shape[1] >= 2 * _COLUMNS and is_jax(x)
        return _by_columns(x * y) if by_columns else namespace(x).vecdot(x, y)
    rows, d = x.shape
    if d > _ONE_CORE:
        return sum(_vecdot(*pieces) for pieces in zip(_pieces(x), _pieces(y), strict=True))
    return x.dot(y[0]) if rows == 1 else _vecdot(x, y)  # for one row, dot takes half as long for the same bits


def add_multiple(target: Array, scale: Any, source: Array) -> None:
    """Add scale * source to a NumPy array (rows, d) in place, in pieces that fit the cache.

    The source may have fewer rows, (period, d), which are repeated; scale is a number or (rows, 1).
    """
    rows, d = target.shape
    if type(scale) is float and len(source) in (1, rows) and target.nbytes <= PIECE:
        target += scale * source
        return
    scale = scale if np.ndim(scale) == 0 else scale.reshape(-1, len(source), 1)
    grouped = target.reshape(-1, len(source), d)  # a view: rows are contiguous
    width = max(1, PIECE // (rows * target.itemsize))
    for start in range(0, d, width):
        grouped[..., start : start + width] += scale * source[:, start : start + width]


def minus_multiple(x: Array, scale: Any, y: Array) -> Array:
    """The difference x - scale * y; in place unless read-only, and for tensors without a temporary for scale * y."""
    if type(scale) is float and hasattr(x, "sub_"):  # a tensor of PyTorch
        subtracted: Array = x.sub_(y, alpha=scale)
        return subtracted
    x -= scale * y
    return x


def to_host(x: Any) -> Any:
    """The array as a NumPy array. Nothing else moves numbers off a device."""
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
    """Raise for a masked array with masked entries, whose values are undefined."""
    if masked := np.count_nonzero(np.ma.getmaskarray(x)):
        raise error("An array must have no masked entries", f"{masked} of {x.size}", "Fill them, as by x.filled(0)")


def row_norms(x: Array) -> Array:
    """The norm of each row, on the host."""
    if not isinstance(x, np.ndarray):
        return to_host(namespace(x).linalg.vector_norm(x, axis=1))
    if x.size < LARGE:
        return np.linalg.norm(x, axis=1)
    return np.sqrt(sum(_vecdot(piece, piece).astype(np.float64) for piece in _pieces(x))).astype(x.dtype)


def _by_columns(x: Array) -> Array:
    """The sum of each row. XLA adds up columns in vector registers, but the numbers of a row one by one."""
    rows, d = x.shape
    whole = d - d % _COLUMNS
    columns = x[:, :whole].reshape(rows, -1, _COLUMNS).sum(axis=1)
    columns = sys.modules["jax"].lax.optimization_barrier(columns)  # else XLA adds up the row after all
    return columns.sum(axis=1) + x[:, whole:].sum(axis=1)


def _pieces(x: Array) -> list[Array]:
    return [x[:, start : start + _ONE_CORE] for start in range(0, x.shape[1], _ONE_CORE)]


def finite_rows(x: Array) -> Array:
    """Which rows have finite numbers only: a mask on the host."""
    xp = namespace(x)
    return to_host(xp.all(xp.isfinite(x), axis=1))


def surely_finite(x: Array) -> bool:
    """Whether all entries are finite, by one sum of squares; False if it overflows, and for large or foreign arrays."""
    if not isinstance(x, np.ndarray) or x.size > _ONE_CORE:
        return False
    flat = x.ravel()
    return isfinite(flat.dot(flat))


def same(x: Array, y: Array) -> bool:
    """Whether two arrays of one shape and library have the same numbers; NaN equals NaN."""
    return x is y or bool((x == y).all()) or bool(((x == y) | ((x != x) & (y != y))).all())


def has_nan(x: Array) -> bool:
    """Whether an entry is NaN, in one pass and on one core: a minimum or a sum of squares is NaN exactly then."""
    if isinstance(x, np.ndarray):
        flat = x.ravel()
        return isnan(flat.min() if flat.size > _ONE_CORE else flat.dot(flat))
    xp = namespace(x)
    return bool(xp.isnan(xp.sum(x * x)))


def snapshot(x: Array) -> Array:
    """What `unchanged_since` compares x with later: a copy, or the row sums of a large array."""
    return x.sum(axis=1) if isinstance(x, np.ndarray) and x.size >= LARGE else copy(x)


def unchanged_since(x: Array, snapshot: Array) -> bool:
    """Whether x has the values it had at the snapshot; if not, and the snapshot is a copy, they are restored."""
    if snapshot.ndim < x.ndim:
        return same(snapshot, x.sum(axis=1))
    if same(snapshot, x):
        return True
    assign(x, snapshot)
    return False


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")  # not imported: the value cannot be a tensor
    return torch is not None and isinstance(value, torch.Tensor)


def is_jax(value: Any) -> bool:
    """Whether a value is an array of JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def _detached(x: Any) -> Any:
    """A tensor without its autograd graph, which would otherwise grow from step to step."""
    return x.detach() if getattr(x, "requires_grad", False) else x


def _device(x: Any) -> Any:
    """The device of an array; None, the default one, for a value that JAX traces."""
    return getattr(x, "device", None)


def _at(x: Any) -> Any:
    extra = "jax" if is_jax(x) else "torch"
    return optional_module("array_api_extra", extra, "A run on other arrays").at(x)


def _other_namespace(x: Any) -> Any:
    kind = "torch" if _is_torch(x) else type(x).__module__.partition(".")[0]
    if kind not in ("torch", "cupy"):
        return x.__array_namespace__()
    return optional_module("array_api_compat", "torch", f"A run on {kind} arrays").array_namespace(x)
