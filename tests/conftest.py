"""Seeds policy: tests draw from generators they seed themselves, and hypothesis draws the same examples every time.

HYPOTHESIS_PROFILE=search looks for new examples, twenty times as many.
"""

import ctypes
import os
import re
import sys
from collections import Counter
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


def pytest_configure(config: pytest.Config) -> None:
    """What JAX compiles is compiled once: other workers, processes and later runs read it from the cache of pytest."""
    if not hasattr(config, "cache"):  # -p no:cacheprovider
        return
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, files in which all are slow are not imported: their libraries take seconds."""
    if config.option.markexpr != "not slow" or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return re.search(r"^pytestmark = \[?\s*pytest\.mark\.slow\b", text, flags=re.MULTILINE) is not None or None


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
    items.sort(key=lambda item: item.path.parent.name != "integration")


def _repeats(item: pytest.Item, number: int) -> bool:
    """Whether a test is statistical, slow beside fast ones of its unit, or a case of the contract or a lemma left out.

    `number` counts the cases of a test. One in three of the fast ones is measured, and all that nothing else repeats:
    arrays of other libraries, and checks that fail.
    """
    folder, file = item.path.parts[-2:]
    if "unit" in item.path.parts:
        return any(mark.name == "slow" for mark in item.own_markers)  # not where the file is marked
    if folder not in ("contract", "lemmas") or file in ("test_arrays.py", "test_checks.py"):
        return folder == "statistics"
    return item.get_closest_marker("slow") is not None or number % 3 > 0


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
