"""Validators: each returns the value in its plain form, or raises an error in three parts."""

import inspect
from collections.abc import Collection
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from dualanchor.core.errors import ArgumentError, ArgumentTypeError

LARGEST_COUNT = 2**62  # the sum of two counts still fits 64 bits
MOST_ROWS = 10**7  # replications of one run
SMALLEST, LARGEST = 1e-100, 1e100  # absolute values of numbers whose squares and quotients stay finite
_UNKNOWN = inspect.signature(lambda *args, **options: None)
_CLOSEST = 1e-9  # a probability is at least this far from 0 and 1, so that it can be divided among many statements


def count(value: Any, name: str, least: int = 1, *, most: float = LARGEST_COUNT, remedy: str = "") -> int:
    """A whole number from `least` to `most`; also a float such as 1e6."""
    remedy = remedy or f"Use a whole number >= {least}{'' if most >= LARGEST_COUNT else f' and <= {most}'}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(f"{name} must be an integer", repr(value), remedy)
    if not least <= (whole := int(value)) <= most:
        without_limit = most == inf or (most >= MOST_ROWS and whole < least)
        rule = f"at least {least}" if without_limit else f"from {least} to {most}"
        raise ArgumentError(f"{name} must be {rule}", value, remedy)
    return whole


def seed(value: Any, rng: Any, owner: str) -> int:
    """The seed; if `rng` is given instead, a number drawn from it."""
    if rng is None:
        return count(value, f"{owner}: seed", 0, most=inf)
    if value != 0:
        received, remedy = f"seed={value!r} and rng={rng!r}", "Leave one of them out"
        raise ArgumentError(f"{owner}: only one of seed and rng may be given", received, remedy)
    if not isinstance(rng, np.random.Generator):
        remedy = "Pass np.random.default_rng(), or a number as seed"
        raise ArgumentTypeError(f"{owner}: rng must be a numpy.random.Generator", repr(rng)[:80], remedy)
    return int(rng.integers(2**63))


def number(
    value: Any, name: str, *, positive: bool = False, least: float = 0.0, below: float = inf, remedy: str = ""
) -> float:
    """A number > 0 if `positive`, else >= `least`, and < `below`; in absolute value 0 or from 1e-100 to 1e100."""
    plain = value.item() if getattr(value, "ndim", None) == 0 else value  # scalars of any array library
    if isinstance(plain, (bool, np.bool_)) or not isinstance(plain, Real):
        raise ArgumentTypeError(f"{name} must be a number", repr(value), remedy or "Use a float")
    try:
        result = float(plain)
    except OverflowError:  # a very large int
        result = inf
    is_large_enough = result > 0 if positive else result >= least
    if not (isfinite(result) and is_large_enough and result < below):
        rule = "positive" if positive else "non-negative" if least == 0 else f"at least {least:g}"
        rule = f"{rule} and finite" if below == inf else f"strictly between 0 and {below:g}" if positive else rule
        raise ArgumentError(f"{name} must be {rule}", value, remedy or f"Use a number that is {rule}")
    if result and not SMALLEST <= abs(result) <= LARGEST:
        rule = f"{name} must be of a size from {SMALLEST:g} to {LARGEST:g}{'' if positive else ', or 0'}"
        raise ArgumentError(rule, value, "Use other units")
    return result


def array(value: Any, name: str, kinds: str, shape: tuple[int, ...], least: float | None = None) -> Any:
    """An array with a dtype of one of these kinds ("f", "iu", ...) and this shape, no entry NaN or below `least`."""
    if value.dtype.kind not in kinds or value.shape != shape:
        rule = f"{name} must have a dtype of kind {' or '.join(kinds)} and shape {shape}"
        raise ArgumentError(rule, f"dtype {value.dtype} and shape {value.shape}", "Pass such an array")
    if least is not None and not (value >= least).all():
        raise ArgumentError(f"{name} must be at least {least:g}", value.min(), "Check the values")
    return value


def probability(value: Any, name: str) -> float:
    """A number from 1e-9 to 1 - 1e-9."""
    p = number(value, name, positive=True, below=1.0, remedy="Use for example 0.95")
    if not _CLOSEST <= p <= 1 - _CLOSEST:
        raise ArgumentError(f"{name} must be from 1e-9 to 1 - 1e-9", value, "Use for example 0.95")
    return p


def switch(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name} must be True or False", repr(value), "Use a bool")
    return bool(value)


def choice(value: Any, name: str, options: Collection[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in options:
        words = ", ".join(map(repr, options))
        raise ArgumentError(f"{name} must be one of {words}", repr(value), "Choose one of them")
    return value


def function(
    value: Any, name: str, form: str, arguments: int | None = None, remedy: str = "", change: str = ""
) -> None:
    """Raise unless the value is callable and, if it has a signature, takes this number of positional arguments."""
    if not callable(value):
        received = repr(type(value).__name__)
        raise ArgumentTypeError(f"{name} must be a function {form}", received, remedy or "Pass a function")
    if arguments is None:
        return
    signature = signature_of(value)
    try:
        signature.bind(*range(arguments))
    except TypeError as error:
        rule = f"{name} must accept {form}"
        raise ArgumentTypeError(rule, f"one with {signature}", change or "Change its arguments") from error


def signature_of(function: Any) -> inspect.Signature:
    """The signature of a function; for one without, as some built-in functions are, that of any arguments."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return _UNKNOWN
