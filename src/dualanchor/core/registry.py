"""Finding methods and problems by name: one file each, found by folder."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Generic, NamedTuple, TypeVar

from dualanchor.core.errors import unknown_name

T = TypeVar("T")


class Entry(NamedTuple):
    """What a list of methods or problems shows: id, one-line title, and the class to make one with."""

    id: str
    title: str
    cls: type[Any]


class Registry(Generic[T]):
    """Every subclass of `base` with an `id` that a module of `package` defines."""

    def __init__(self, kind: str, package: str, base: type[T]) -> None:
        self._kind, self._package, self._base = kind, package, base
        self._found: dict[str, type[T]] | None = None

    def all(self) -> dict[str, type[T]]:
        """Classes by id, in alphabetical order."""
        if self._found is None:
            found = {}
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__):
                content = vars(importlib.import_module(f"{self._package}.{module.name}"))
                for value in content.values():
                    if (
                        isinstance(value, type)
                        and issubclass(value, self._base)
                        and value.__module__.startswith(self._package + ".")
                        and isinstance(vars(value).get("id"), str)
                    ):
                        found[vars(value)["id"]] = value
            self._found = dict(sorted(found.items()))
        return self._found

    def entries(self) -> list[Entry]:
        """What there is, in alphabetical order."""
        return [Entry(name, vars(cls)["title"], cls) for name, cls in self.all().items()]

    def get(self, name: str) -> type[T]:
        """The class with this id; an error lists close matches."""
        classes = self.all()
        if name not in classes:
            raise unknown_name(self._kind, name, classes)
        return classes[name]
