"""Text that cannot become markup, and numbers as they are shown."""

import json

import numpy as np
import pytest

from dualanchor.report import formats, tables
from dualanchor.report.markup import Markup, element, embedded_json, empty_element, joined, row, table


def test_text_is_escaped_and_markup_is_not():
    inner = element("b", "1 < 2 & 'three'")
    assert inner == "<b>1 &lt; 2 &amp; &#x27;three&#x27;</b>"
    assert element("p", inner, "<i>", class_='"x"') == f'<p class="&quot;x&quot;">{inner}&lt;i&gt;</p>'
    assert joined(["<", Markup("<br>")]) == "&lt;<br>"


def test_attributes():
    made = empty_element("input", aria_label="a", hidden=True, disabled=False, title=None)
    assert made == '<input aria-label="a" hidden>'


def test_a_table_names_its_box_and_rows():
    made = table("Caption <1>", ["Head"], [row("name", 3, class_="x")])
    assert 'aria-label="Caption &lt;1&gt;"' in made
    assert '<tr class="x"><th scope="row">name</th><td>3</td></tr>' in made


def test_embedded_json_cannot_end_its_script():
    value = {"a": "</script><!-- &\u2028"}
    text = embedded_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded_json(np.inf)


def test_an_unknown_verdict_is_shown_as_it_is():
    assert "open" in tables.verdict("<new>")
    assert "&lt;new&gt;" in tables.verdict("<new>")


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
