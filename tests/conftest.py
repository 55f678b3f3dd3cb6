"""Seeds policy: tests draw from generators they seed themselves; hypothesis is derandomised in CI.

Nothing that tests compile is kept, nor is anything used that somebody else kept.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")
os.environ["DUALANCHOR_CACHE"] = ""
