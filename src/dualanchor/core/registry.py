"""Finding methods and problems by name: one file each, found by folder."""

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
    """The subclasses of `base` with an `id`, each defined in a module of `package`; not those with `listed = False`."""

    def __init__(self, kind: str, package: str, base: type[T]) -> None:
        self._kind, self._package, self._base = kind, package, base
        self._found: dict[str, type[T]] = {}

    def all(self) -> dict[str, type[T]]:
        if self._found:
            return self._found
        found = {}
        for info in pkgutil.iter_modules(importlib.import_module(self._package).__path__):
            module = importlib.import_module(f"{self._package}.{info.name}")
            for value in vars(module).values():
                defined = isinstance(value, type) and value.__module__ == module.__name__  # not imported there
                if defined and issubclass(value, self._base) and "id" in vars(value) and getattr(value, "listed", True):
                    found[value.id] = value
        self._found = dict(sorted(found.items()))
        return self._found

    def entries(self) -> list[Entry]:
        return [Entry(name, vars(cls)["title"], cls) for name, cls in self.all().items()]

    def get(self, name: str) -> type[T]:
        if name not in self.all():
            raise unknown_name(self._kind, name, self.all())
        return self.all()[name]
