"""Runs the engine on the toy, in the copy of the tree that the test made: all is real but testbed and machine."""

import contextlib
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from crosslayer.browser import BrowserPrograms
from crosslayer.campaign import rounds, run
from crosslayer.machine import Usage
from crosslayer.studies import STUDIES, sized
from crosslayer.testbed import LinkCheck


class FakeTestbed:
    backend = SimpleNamespace(name="netem", version="none")
    profile = None
    folder = Path()

    def __init__(self, backend, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    @contextlib.contextmanager
    def serve(self, pages, **options):
        yield SimpleNamespace(events_file=Path()), {}

    def raise_if_dead(self):
        pass

    def rewind(self):
        pass

    def set_link(self, profile):
        self.profile = profile
        rtt = profile.rtt_ms
        self.checked = LinkCheck(
            profile.name, time.time(), "netem", (rtt,), 1, rtt, rtt, None, None, None, None, rtt / 2, rtt / 2, "pass"
        )
        return self.checked

    def check_link(self):
        return self.set_link(self.profile)

    def confirm_link(self, before):
        return self.set_link(self.profile)

    @contextlib.contextmanager
    def cross_traffic(self):
        yield SimpleNamespace(mbit=None)

    @contextlib.contextmanager
    def measuring_delay(self):
        yield []

    def take_checks(self):
        return [self.checked]


rounds.Testbed = FakeTestbed
# What else runs beside a test is no matter of the toy's.
rounds.Meter = lambda: SimpleNamespace(usage=lambda: Usage(time.time(), 1.0, 1, 1.0, 0.0, 0.0, None))
rounds.network = SimpleNamespace(carrier_changes=lambda: 0, congestion_control=lambda: "none")
rounds.find_browser = lambda name: BrowserPrograms(name, "chromium", "none", "chromedriver", "none")
rounds.provenance.server_version = lambda program: "none"
os.environ["CROSSLAYER_SERVER_BIN"] = sys.executable  # any program will do, none is started
plan = sized("toy", "quick")
run.measure(plan, Path(sys.argv[1]), STUDIES["toy"].measurer, STUDIES["toy"].profiles(plan))
