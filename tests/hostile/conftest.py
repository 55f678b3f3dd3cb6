"""Hostile tests: damaged files, absurd arguments, failing user code, killed processes.

No case may end in a traceback, hang or give a wrong result. `--hostile-full` (tests/conftest.py) runs all the cases;
without it each test takes a few of them.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LIMIT = 300  # seconds that one case may take; far above what any of them needs, on a busy machine too


@pytest.fixture(scope="session")
def hostile_full(pytestconfig: pytest.Config) -> bool:
    """Whether all the cases are asked for."""
    return bool(pytestconfig.getoption("--hostile-full"))


@pytest.fixture(scope="session")
def cases(hostile_full: bool) -> Callable[[int, int], range]:
    """`cases(few, all)`: the numbers of the cases to run, usable as seeds."""
    return lambda few, full: range(full if hostile_full else few)


@pytest.fixture(scope="session")
def no_hang() -> Callable[[], object]:
    """`with no_hang():` fails the test if the block takes longer than LIMIT; for code in the main thread."""

    @contextmanager
    def limit() -> Iterator[None]:
        def ring(*_: object) -> None:
            pytest.fail(f"a hang: one case took more than {LIMIT} s")

        before = signal.signal(signal.SIGALRM, ring)
        signal.alarm(LIMIT)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    return limit


def pytest_collection_modifyitems(items):
    """They run in `make test` and `make hostile`, not in `make check`."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
