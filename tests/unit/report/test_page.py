"""The page: text that cannot become markup, what it shows, and numbers as they are shown."""

import copy
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from tests.unit.report.small import small_study

from dualanchor.report import formats, page
from dualanchor.report.panel_data import panels_of

EVIL = "</script><img src=x onerror=alert(1)>&\u2028'\""


def rendered(study, monkeypatch):
    """The page of a study, without figures and without plotly.js."""
    monkeypatch.setattr(page, "plotly_script", lambda: "plotly")
    panels = panels_of(study)
    return page.render_page(study, panels, dict.fromkeys([*(panel.name for panel in panels), "appendix"], b"<svg/>"))


@pytest.fixture(scope="module")
def study():
    return small_study()


class Elements(HTMLParser):
    """Start tags and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_text_from_a_study_cannot_become_markup(study, monkeypatch):
    study = copy.deepcopy(study)
    results = study.results
    panel = results["panels"].pop("own")
    panel["title"], panel["problem"] = EVIL, {"name": EVIL, EVIL: EVIL}
    panel["methods"][EVIL] = panel["methods"].pop("sgda") | {"selected": {EVIL: EVIL}}
    results["panels"] = {EVIL: panel}
    study.curves = {EVIL: {EVIL: study.curves["own"]["sgda"]}}
    results["claims"] = [
        dict.fromkeys(("id", "panel", "text", "verdict", "evidence"), EVIL)
        | {"readings": [{"reading": EVIL, "verdict": EVIL, "value": EVIL}]}
    ]
    results["version"], study.notes = EVIL, [EVIL]
    found = Elements(rendered(study, monkeypatch))
    assert found.open == []
    assert not [tag for tag in found.tags if tag[1].get("src") == "x"]
    assert [tag for tag, _ in found.tags].count("script") == 3
    assert EVIL in found.text


def test_the_figures_data_is_json_that_cannot_end_its_script(study, monkeypatch):
    text = rendered(study, monkeypatch)
    (data,) = re.findall(r'id="figures">(.*?)</script>', text)
    assert not set("<>&\u2028") & set(data)
    assert set(json.loads(data)) == {"exp1", "own", "appendix-exp1"}
    monkeypatch.setattr(page, "interactive_figure", lambda panel: {"y": np.inf})
    with pytest.raises(ValueError, match="not JSON compliant"):
        rendered(study, monkeypatch)


def test_a_study_without_panels_claims_or_optional_fields(study, monkeypatch):
    empty = copy.deepcopy(study)
    empty.results |= {"panels": {}, "claims": []}
    text = rendered(empty, monkeypatch)
    assert "The study has no panels." in text
    assert "No claims were checked in this study." in text
    bare = copy.deepcopy(study)
    bare.results.pop("tune_seeds")
    for panel in bare.results["panels"].values():
        for name in ("title", "problem", "initial_residual"):
            panel.pop(name)
    for claim in bare.results["claims"]:
        claim.pop("readings")
    assert "Problem: not described." in rendered(bare, monkeypatch)


def test_an_asterisk_marks_our_methods_whether_tuned_or_not(study, monkeypatch):
    assert "library&#39;s own" not in rendered(study, monkeypatch)
    study = copy.deepcopy(study)
    methods = study.results["panels"]["own"]["methods"]
    methods["auto"] = {**methods["sgda"], "grid": []}
    assert "* This library's own methods, untuned;" in rendered(study, monkeypatch)
    methods["auto"] = methods["sgda"]
    assert "* This library's own methods;" in rendered(study, monkeypatch)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.257, "0.2570"),
        (3.626, "3.626"),
        (0.0, "0"),
        (1.5e-7, "1.500e−7"),
        (12345678.0, "1.235e7"),
        (3.004e52, "3.004e52"),
        (None, "diverged"),
    ],
)
def test_residuals(value, text):
    assert formats.residual(value) == text


def test_intervals_and_ratios():
    assert formats.interval(0.1, None) == "0.1000 to ∞"
    assert formats.interval(None, None) == formats.NOTHING
    assert formats.ratio(3.0, 2.0) == "1.50"
    assert formats.ratio(None, 2.0) == formats.ratio(1.0, 0.0) == formats.NOTHING


def test_seeds_and_parameters():
    assert formats.integers([0, 1, 2, 3, 7, 9, 10]) == "0 to 3, 7, 9, 10"
    assert formats.integers([]) == formats.parameters({}) == "none"
    assert formats.parameters({"a": 0.005, "b": 10, "c": None, "d": [1, 2.5], "e": True}) == (
        "a = 0.005, b = 10, c = none, d = 1, 2.5, e = yes"
    )
    assert formats.diverged([1.0, None]) == "1 of 2 seeds diverged"
    assert formats.diverged([1.0]) == ""
