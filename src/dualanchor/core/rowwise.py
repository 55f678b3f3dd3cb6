"""Records of hyper-parameters that may differ from row to row: those that do are columns of shape (rows, 1)."""

import dataclasses
import numbers
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from dualanchor.core import check
from dualanchor.core.errors import ArgumentTypeError
from dualanchor.core.types import Rows


class Column(np.ndarray[Any, Any]):
    """One number per row, (rows, 1), which is converted to the precision of arrays it is combined with.

    A Python number is, too, so a row of a stack computes exactly what it would compute alone. The result of columns
    and numbers alone is a column.
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        arrays = [operand for operand in inputs if isinstance(operand, np.ndarray) and not isinstance(operand, Column)]
        floats = [array.dtype for array in arrays if array.dtype.kind == "f"]
        dtype = np.result_type(*floats) if floats else None
        plain = [np.asarray(operand, dtype) if isinstance(operand, Column) else operand for operand in inputs]
        if out is not None:
            options["out"] = tuple(np.asarray(array) for array in out)
        value = getattr(ufunc, method)(*plain, **options)
        return value if arrays or not isinstance(value, np.ndarray) else value.view(Column)


def number(value: Any) -> Any:
    """A Python number for a NumPy scalar, which would raise the precision of arrays it is combined with."""
    return value.item() if isinstance(value, np.generic) else value


class Rowwise:
    """Mixin for frozen dataclasses: many records can be stacked into one with columns, and restricted to rows."""

    @classmethod
    def stack(cls, records: Sequence[Self]) -> Self:
        """One record for many: a field in which all agree stays as it is, numbers that differ become a column."""
        first = records[0]
        if len(records) == 1:
            return first
        if any(type(record) is not type(first) for record in records):
            kinds = ", ".join(sorted({type(record).__name__ for record in records}))
            raise ArgumentTypeError("Configurations of one run must be of one class", kinds, "Run each class by itself")
        changes = {}
        for field in dataclasses.fields(first):  # type: ignore[arg-type]
            values = [getattr(record, field.name) for record in records]
            if any(value != values[0] for value in values[1:]):
                changes[field.name] = _column(type(first).__name__, field.name, values)
        return dataclasses.replace(first, **changes)  # type: ignore[type-var]

    def require_positive(self, *names: str) -> None:
        """Raise unless these fields are positive numbers, or columns of them."""
        for name in names:
            value, label = getattr(self, name), f"{type(self).__name__}: {name}"
            for entry in _entries(value):
                check.number(entry, label, positive=True, remedy=f"Use a positive number for {name}")
            if np.ndim(value) == 0 and not isinstance(value, int):
                object.__setattr__(self, name, float(value))  # a Python number does not raise the precision of arrays

    def require_counts(self, *names: str) -> None:
        """Raise unless these fields are whole numbers >= 1, or columns of them."""
        for name in names:
            value, label = getattr(self, name), f"{type(self).__name__}: {name}"
            counts = [check.count(entry, label) for entry in _entries(value)]
            if np.ndim(value) == 0:
                object.__setattr__(self, name, counts[0])

    def take(self, rows: Rows) -> Self:
        """The record of a selection of the rows."""
        return self._with(lambda column: column[rows])

    def in_full_precision(self) -> Self:
        """The same record with plain arrays for columns, for runs in double precision: they are faster."""
        return self._with(np.asarray)

    def collapsed(self) -> Self:
        """The same record with a single number for each column whose rows agree."""
        return self._with(lambda column: column.flat[0].item() if np.unique(column).size == 1 else column)

    def _with(self, change: Callable[[Any], Any]) -> Self:
        """The record with `change` applied to its columns, also those in nested records; not checked again."""
        part = object.__new__(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value = change(value)
            elif isinstance(value, Rowwise):
                value = value._with(change)
            object.__setattr__(part, field.name, value)
        return part


def _entries(value: Any) -> Any:
    """The numbers in a column (of any array library), or a single number as a list."""
    return np.ravel(value) if getattr(value, "ndim", None) == 2 else [value]


def _column(owner: str, name: str, values: list[Any]) -> Any:
    """A column of numbers, or a stack of nested records."""
    for kind, dtype in ((numbers.Integral, np.int64), (numbers.Real, np.float64)):
        if all(isinstance(value, kind) for value in values):
            return np.array(values, dtype)[:, None].view(Column)
    if all(isinstance(value, Rowwise) for value in values):
        return type(values[0]).stack(values)
    rule = f"{owner}: configurations of one run may differ in numbers only, and {name} is not one"
    raise ArgumentTypeError(rule, ", ".join(map(repr, values[:3])), "Run these configurations one by one")
