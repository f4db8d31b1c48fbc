"""Helpers of the tests (`synthetic`) are importable from every test."""

import sys
from pathlib import Path

import hypothesis

sys.path.insert(0, str(Path(__file__).parent))

# These machines are shared: how long an example takes says nothing.
hypothesis.settings.register_profile(
    "shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True
)
hypothesis.settings.load_profile("shared")
