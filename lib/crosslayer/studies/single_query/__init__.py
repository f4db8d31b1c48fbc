"""One query on a new connection over every transport, from six vantage points (Kosek et al., IMC 2022, section 3.1)."""

from crosslayer.campaign.plan import Plan
from crosslayer.studies.single_query import vantage
from crosslayer.study import Paper, Section, Study
from crosslayer.vocabulary import VANTAGE_POINTS

IMC22 = Paper("IMC22", "Kosek et al., ACM IMC 2022", "10.1145/3517745.3561445")


def _plan(resolvers: int, rounds: int, points: int = len(VANTAGE_POINTS)) -> Plan:
    links = vantage.links(resolvers, tuple(VANTAGE_POINTS)[:points])
    return Plan(study="single-query", links=links, pages=("example.org",), rounds=rounds)


STUDY = Study(
    name="single-query",
    package=__name__,
    paper=IMC22,
    lead="One query on a new connection over every transport, from six vantage points whose RTTs are a model.",
    sections=(
        Section(
            "single_query",
            "Single queries",
            "Cost of one query with its handshake on each transport, from near and far vantage points "
            "(Kosek et al., IMC 2022, section 3.1).",
        ),
    ),
    # paper: 84 rounds, as one week with a round every two hours
    sizes={"smoke": _plan(1, 3, points=2), "quick": _plan(2, 6), "paper": _plan(vantage.RESOLVERS, 84)},
    headlines={
        "I093": "Handshake, DoTCP and DoQ against DoH and DoT",
        "I103": "Single query, gain of DoQ over DoT and DoH",
    },
    own_links=lambda plan: vantage.profiles(plan.links, plan.seed),
)
