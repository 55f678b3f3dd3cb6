"""Signatures of the compiled pieces, so that any step goes with any operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from numba import types


def given(kind: Any, axes: int) -> Any:
    """An array that is only read."""
    return types.Array(kind, axes, "C", readonly=True)


_VECTOR = types.float64[::1]
_VECTORS = types.float64[:, ::1]
_NUMBERS = given(types.float64, 1)

STEP = types.void(_NUMBERS, _VECTORS, _VECTORS)
"""`step(c, s, G)`: change the rows of the state s, with coefficients c and values G of F."""

LOOK = types.void(_NUMBERS, _VECTORS, _VECTORS, _VECTOR)
"""`look(c, s, G, point)`: where F is evaluated a second time."""

OPERATOR = types.void(_VECTOR, given(types.float64, 2), _VECTOR, _NUMBERS, given(types.int64, 1), _VECTOR)
"""`operator(x, data, constants, noise, picks, G)`: the mean of a batch at x; constants[0] is the noise's scale."""


class Pointer(types.WrapperAddressProtocol):  # type: ignore[misc]
    """A compiled function by its address: handing over the function itself would have it looked up every time."""

    def __init__(self, function: Any, kind: Any) -> None:
        function.compile(kind.args)
        self._function, self._kind = function, kind  # kept, so that the code stays in memory
        compiled = function.get_compile_result(kind)
        self._numba_type_ = types.FunctionType(kind)
        self._address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)

    def __wrapper_address__(self) -> int:
        return self._address

    def signature(self) -> Any:
        return self._kind


@cache
def pointer(function: Any, kind: Any) -> Pointer:
    """The address of a compiled function, found once."""
    return Pointer(function, kind)


class Steps(NamedTuple):
    """A method's compiled step.

    Attributes
    ----------
    fields, parameters : list of str
        Names of its state and of the hyper-parameters that its coefficients depend on.
    coefficients : callable
        The numbers of step k from k and these hyper-parameters.
    size : int
        How many these are.
    alone : bool
        Whether every step is one evaluation.
    one : compiled function
        The step after one evaluation of F.
    look, two : compiled functions
        The second point and the step after two evaluations, for a method without a coin or whose coin shows tails.
    same : bool
        Whether both evaluations use one batch.
    update : compiled function or None
        `update(c, *state, G)` for one row of any length and precision, where a step is one evaluation and no coin.
    used : list of str
        Which state that takes.
    """

    fields: list[str]
    parameters: list[str]
    coefficients: Callable[..., tuple[Any, ...]]
    size: int
    alone: bool
    one: Any
    look: Any
    two: Any
    same: bool
    update: Any
    used: list[str]

    @property
    def draws(self) -> int:
        """Batches that a step draws."""
        return 1 if self.alone or self.same else 2
