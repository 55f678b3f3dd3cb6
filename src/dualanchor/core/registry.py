"""Methods and problems by name: the classes found in the modules of a package."""

import importlib
import pkgutil
from typing import Any, Generic, NamedTuple, TypeVar

from dualanchor.core.errors import unknown_name

T = TypeVar("T")


class Registered(NamedTuple):
    """A line of a list of methods or problems: id, one-line title, and class."""

    id: str
    title: str
    cls: type[Any]


class Registry(Generic[T]):
    """The subclasses of `base` in the modules of `package` that define an `id`, except those with `listed = False`."""

    def __init__(self, kind: str, package: str, base: type[T]) -> None:
        self._kind, self._package, self._base = kind, package, base
        self._classes: dict[str, type[T]] = {}

    def all(self) -> dict[str, type[T]]:
        """The classes by id, sorted; the modules are imported at the first call."""
        if self._classes:
            return self._classes
        classes = {}
        for info in pkgutil.iter_modules(importlib.import_module(self._package).__path__):
            module = importlib.import_module(f"{self._package}.{info.name}")
            for value in vars(module).values():
                is_own = isinstance(value, type) and value.__module__ == module.__name__  # not imported from elsewhere
                if is_own and issubclass(value, self._base) and "id" in vars(value) and getattr(value, "listed", True):
                    classes[value.id] = value
        self._classes = dict(sorted(classes.items()))
        return self._classes

    def entries(self) -> list[Registered]:
        return [Registered(name, vars(cls)["title"], cls) for name, cls in self.all().items()]

    def get(self, name: str) -> type[T]:
        if name not in self.all():
            raise unknown_name(self._kind, name, self.all())
        return self.all()[name]
