"""A study as CONTRIBUTING.md tells to add one: what one transport takes on one link."""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_PLAN = Plan(study="toy", links=("fiber",), pages=("example.org",))

STUDY = Study(
    name="toy",
    room=__name__,
    lead="What one transport takes on one link.",
    sections=(Section("toy", "A toy", "How long does it take?"),),
    sizes={size: _PLAN.resized(rounds=rounds) for size, rounds in (("smoke", 3), ("quick", 8), ("paper", 100))},
)
