"""`docs/findings/claims.md` says of each claim what the committed campaigns do."""

from __future__ import annotations

import pytest

import claims_document

AUDITED = """
T155 T156 T158 T159 T161 T162 T164 T165 T170 T171 T173 T163 T167 T168 T228 T208 I059 I060 I063 I064 I068 I069
I073 I074 I056 I072 I108 I112 I120 I121 I137 B021 B025 B029 B033 B023 B027 B031 B035 B026 B056 B057 B042 B043
B044 B046 B047 B048 B051 B052 B041 B045 B049 T046 T222 I122 I127
"""
"""What the audit called ours to mend: 53 that differed, and 4 that were not measured."""


@pytest.mark.slow
def test_every_claim_of_the_document_exists_and_has_the_verdict_it_says() -> None:
    """Renewed by `python -m tests.claims_document`."""
    now = claims_document.verdicts()
    text = claims_document.DOCUMENT.read_text(encoding="utf-8")
    rows = claims_document.rows(text)
    assert len(rows) > 50
    assert len({claim for claim, *_ in rows}) == len(rows), "a claim stands twice"
    assert set(AUDITED.split()) <= {claim for claim, *_ in rows}, "a claim of the audit is missing"
    assert claims_document.renewed(text, now) == text
