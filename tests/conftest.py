"""Seeds policy: tests draw from generators they seed themselves, and hypothesis draws the same examples every time.

HYPOTHESIS_PROFILE=search looks for new examples, twenty times as many.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", derandomize=True, max_examples=25, **COMMON)
settings.register_profile("search", max_examples=500, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hostile-full", action="store_true", help="run the hostile tests with all their cases")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Statistical tests repeat code that others cover: counting its lines would double their time.

    The tests of integration come first: the longest are among them, and no worker should be left with one at the end.
    """
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here / "statistics"):
            item.add_marker("no_cover")
    items.sort(key=lambda item: not item.path.is_relative_to(here / "integration"))


@pytest.fixture(autouse=True, scope="module")
def _release_compiled_code() -> Iterator[None]:
    """What JAX has compiled for a file of tests goes with it: all of it together would take gigabytes.

    Each compiled operation holds about 1.5 MB, which the C library keeps for itself unless it is told to trim.
    """
    yield
    if (jax := sys.modules.get("jax")) is not None:
        jax.clear_caches()
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc
            libc.malloc_trim(0)
