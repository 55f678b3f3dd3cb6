"""Where the driver of a run reads the clock, and what decides how far it goes between two checks: patched by tests."""

from __future__ import annotations

import time
from typing import Any

_CLOCKS = ("dualanchor.run.driver.time", "dualanchor.run.observe.time")
CHUNK_STEPS = "dualanchor.run.driver.CHECK_INTERVAL"
CHUNK_SECONDS = "dualanchor.run.driver._CHUNK_SECONDS"
SNAPSHOT_SIZE = "dualanchor.run.driver._SNAPSHOT_SIZE"


class Clock:
    """Stands in for the module `time` in the driver and the observer of a run: it shows what it was set to."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, monkeypatch: Any) -> None:
        self.now = 0.0
        for place in _CLOCKS:
            monkeypatch.setattr(place, self)

    def perf_counter(self) -> float:
        return self.now


class TickingClock(Clock):
    """A second passes whenever it is read."""

    def perf_counter(self) -> float:
        self.now += 1
        return self.now
