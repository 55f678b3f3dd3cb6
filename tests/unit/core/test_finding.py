"""Findings and claims: plain data, one table, one documented section per code."""

import json
import re
import string
from pathlib import Path

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.claim import CLAIM_TEXTS
from dualanchor.core.finding import CODES

ROOT = Path(__file__).parents[3]


def sections():
    """The sections of the page: code -> text."""
    names = ("method", "operator", "run", "certificate")
    text = "".join((ROOT / f"docs/findings_{name}.md").read_text(encoding="utf-8") for name in names)
    parts = re.split(r"^\((.+)\)=\n### `(.+)`\n", text, flags=re.MULTILINE)[1:]
    anchors, titles, bodies = parts[::3], parts[1::3], parts[2::3]
    assert anchors == titles
    return dict(zip(titles, bodies, strict=True))


def test_every_code_has_its_section_and_every_section_its_code():
    assert list(sections()) == list(CODES)


def test_a_section_says_enough_and_not_too_much():
    for code, body in sections().items():
        sentences = re.findall(r"[.?](?=\s)", body.split("\n## ")[0] + "\n")
        assert 2 <= len(sentences) <= 6, code
        assert re.search("[Ii]gnore", body), f"{code}: when may it be ignored?"


def test_the_list_of_codes_leads_to_their_sections():
    text = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    listed = re.findall(r"\[`(.+?)`\]\((.+?)\.md#(.+?)\)", text)
    assert [code for code, _, _ in listed] == list(CODES)
    for code, page, anchor in listed:
        assert anchor == code.lower()
        assert f"({code})=\n" in (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")


def test_codes_are_short_words_and_templates_take_what_is_not_finite():
    for code, entry in CODES.items():
        assert re.fullmatch(r"[A-Za-z]+(-[A-Za-z]+)*", code)
        assert len(code) <= 30
        if isinstance(entry.text, str):
            names = [name for _, name, _, _ in string.Formatter().parse(entry.text) if name]
            assert str(da.Finding(code, values=dict.fromkeys(names))).count("infinite") >= len(names)


def test_an_unknown_code_is_refused():
    with pytest.raises(da.errors.UnknownNameError, match="Did you mean not-monotone"):
        da.Finding("not-monoton")
    with pytest.raises(ValueError, match="loud"):
        da.Finding("no-L", "loud")


def test_a_finding_is_plain_data():
    found = da.Finding.of("not-monotone", count=np.int64(3), pairs=16, slope=np.float64(-2.1))
    assert found.severity is da.Severity.VIOLATION
    assert found.values == {"count": 3, "pairs": 16, "slope": -2.1}
    assert str(found) == (
        "F is not monotone along 3 of 16 pairs (slope down to -2.1): is a sign wrong? "
        "(saddle takes the gradient in v, not minus it) [not-monotone]"
    )
    assert found.label == "warning"
    assert da.Finding.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    endless = da.Finding.of("residual-grew", end=np.inf)
    assert da.Finding.from_dict(json.loads(json.dumps(endless.to_dict(), allow_nan=False))) == endless
    assert "grew to infinite" in str(endless)
    milder = da.Finding("not-monotone", da.Severity.NOTE, found.values)
    assert (milder.label, milder == found) == ("note", False)
    with pytest.raises(AttributeError):
        found.code = "no-L"


@pytest.mark.parametrize("kind", da.ClaimKind)
def test_a_claim_is_plain_data(kind):
    theorem = da.Theorem("theorem-a", "Theorem A", ("Assumption 1",))
    claim = da.Claim(kind, 0.1, 0.95, theorem, theorem.assumptions)
    assert da.Claim.from_dict(json.loads(json.dumps(claim.to_dict()))) == claim
    assert da.Claim.from_dict(da.Claim(kind).to_dict()) == da.Claim(kind)
    assert kind in CLAIM_TEXTS
    assert str(claim)
    assert claim.by_theorem == ("Theorem A" in str(claim))


def test_the_price_of_a_certified_run_is_no_promise():
    values = {"reason": "no-theorem-wanted", "expected": 2160, "most": 10_000_000}
    assert "of the order of 2,200 samples, at most 10,000,000" in str(da.Finding("route-certified", values=values))
    first = da.Finding("route-certified-first", values={**values, "samples": 500})
    assert "of the order of 2,200 in all, at most 10,000,000" in str(first)
