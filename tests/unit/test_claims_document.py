"""`docs/claims.md` says of each claim what the committed campaigns do."""

from __future__ import annotations

import claims_document


def test_every_claim_of_the_document_exists_and_has_the_verdict_it_says() -> None:
    """Renewed by `python -m tests.claims_document`."""
    now = claims_document.verdicts()
    rows = claims_document.rows()
    assert len(rows) > 50
    assert len({claim for claim, *_ in rows}) == len(rows), "a claim stands twice"
    assert {claim: verdict for claim, _, verdict in rows} == {claim: now.get(claim) for claim, *_ in rows}
