"""Seeds policy: tests draw from generators they seed themselves, and hypothesis draws the same examples every time.

HYPOTHESIS_PROFILE=search looks for new examples, twenty times as many.
"""

import ctypes
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", derandomize=True, max_examples=25, **COMMON)
settings.register_profile("search", max_examples=500, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hostile-full", action="store_true", help="run the hostile tests with all their cases")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that repeat code which others cover are not measured: counting its lines would double their time.

    The tests of integration come first: the longest are among them, and no worker should be left with one at the end.
    """
    seen = Counter[str]()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if _repeats(item, seen[name]):
            item.add_marker("no_cover")
        seen[name] += 1
    items.sort(key=lambda item: not _is_in(item, "integration"))


def _is_in(item: pytest.Item, *folders: str) -> bool:
    return any(item.path.is_relative_to(HERE / folder) for folder in folders)


def _repeats(item: pytest.Item, number: int) -> bool:
    """Whether a test is statistical, or one of the cases of the contract or of a lemma that are left out.

    `number` counts the cases of a test. One in three of the fast ones is measured, and all that nothing else repeats:
    arrays of other libraries, and checks that fail.
    """
    if item.path.name in ("test_arrays.py", "test_checks.py") or not _is_in(item, "statistics", "contract", "lemmas"):
        return False
    return _is_in(item, "statistics") or item.get_closest_marker("slow") is not None or number % 3 > 0


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
