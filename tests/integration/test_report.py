"""The report as its reader gets it: files in a folder, and a page in a real browser without a network."""

import json
from itertools import pairwise

import numpy as np
import pytest
from tests.integration.browser import all_of, emulate, errors, resize, settle
from tests.unit.report.small import CLAIMS, small_study

from dualanchor.report import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def study():
    return small_study()


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    path = write_report(study, tmp_path_factory.mktemp("report") / "made" / "for it")
    assert path.name == "report.html"
    return path.parent


@pytest.fixture(scope="module")
def opened(browser, folder):
    browser.get((folder / "report.html").as_uri())
    return browser


@pytest.fixture
def page(opened):
    """The report in a wide window on a light screen."""
    resize(opened, 1300)
    emulate(opened, "", "light")
    return opened


def shown_methods(page, figure):
    """Methods whose line is drawn, and methods whose band is."""
    script = """
        const traces = document.getElementById(arguments[0])._fullData.filter((trace) => trace.visible === true);
        return [false, true].map((band) => traces.filter((t) => (t.fill === "toself") === band).map((t) => t.meta));
    """
    lines, bands = page.execute_script(script, f"figure-{figure}")
    return set(lines), set(bands)


def test_opens_from_disk_without_network_and_errors(page):
    page.get_log("performance")  # of the browser's own start page
    page.refresh()
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requested = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert any(url.endswith("report.html") for url in requested)
    assert {url.split(":")[0] for url in requested} <= {"file", "data", "blob"}
    assert page.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    assert errors(page) == []
    assert not all_of(page, "[data-title*='hare'], [data-title*='loud']")  # no button that uploads


def test_each_panel_shows_its_curves(page, study):
    for name, panel in study.results["panels"].items():
        assert shown_methods(page, name) == (set(panel["methods"]), set(panel["methods"]))
        lines = all_of(page, f"#figure-{name} .scatterlayer .trace path.js-line")
        assert len([line for line in lines if line.get_attribute("d")]) >= len(panel["methods"])
    compared = {"s-dual-ohm", "s-ohm", "s-ohm-tuned"}
    assert shown_methods(page, "appendix-exp1") == (compared, compared)


def test_a_legend_entry_switches_line_and_band(page):
    def entry(name):
        return page.find_element("css selector", f"#panel-own [data-method='{name}']")

    rest = ({"s-dual-ohm"}, {"s-dual-ohm"})
    entry("sgda").click()
    assert shown_methods(page, "own") == rest
    assert entry("sgda").get_attribute("aria-pressed") == "false"
    resize(page, 800)  # drawn again, still hidden
    assert shown_methods(page, "own") == rest
    entry("sgda").click()
    assert shown_methods(page, "own") == ({"s-dual-ohm", "sgda"},) * 2
    assert len(shown_methods(page, "exp1")[0]) == 5

    from selenium.webdriver import ActionChains

    ActionChains(page).double_click(entry("sgda")).perform()
    assert shown_methods(page, "own") == ({"sgda"}, {"sgda"})
    page.refresh()


def test_tables_have_the_numbers(page, study):
    rows = {row.text.split("\n")[0]: row.text for row in all_of(page, "#summary tbody tr")}
    panels = study.results["panels"]
    best = min(row["final"]["mean"] for row in panels["exp1"]["methods"].values())
    assert sum(f"{best:#.4g}" in row for row in rows.values()) >= 1
    assert "4 of 4 seeds diverged" in page.find_element("id", "summary").text
    assert len(all_of(page, "#panel-exp1 > .scroll tbody tr")) == len(panels["exp1"]["methods"])
    points = sum(len(row["grid"]) for row in panels["exp1"]["methods"].values())
    assert len(all_of(page, "#panel-exp1 details tbody tr")) == points
    assert not page.find_element("css selector", "#panel-exp1 details tbody tr").is_displayed()
    assert "Yoon, TaeHo" in page.find_element("id", "cite").text


def test_claims_are_complete(page):
    rows = all_of(page, "#claims tbody tr")
    assert len(rows) == len(CLAIMS)
    for row, claim in zip(rows, CLAIMS, strict=True):
        for key in ("id", "panel", "text", "verdict", "evidence"):
            assert claim[key] in row.text
        assert len(row.find_elements("css selector", "li")) == len(claim["readings"])
    symbols = [cell.text for cell in all_of(page, "#claims td > .verdict > [aria-hidden]")]
    assert symbols == ["✓", "✗", "≈", "?"]


@pytest.mark.parametrize("width", [390, 768, 1300])
def test_no_horizontal_scrolling(page, width):
    resize(page, width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    edges = """
        const boxes = document.querySelectorAll(".scroll, .plot .main-svg");
        return Array.from(boxes, (box) => box.getBoundingClientRect().right);
    """
    assert max(page.execute_script(edges)) <= width


def test_page_is_well_formed_for_assistive_technology(page):
    assert page.find_element("css selector", "html").get_attribute("lang") == "en"
    assert page.title
    levels = [int(heading.tag_name[1]) for heading in all_of(page, "h1, h2, h3, h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(image.get_attribute("alt") for image in all_of(page, "img"))
    ids = [element.get_attribute("id") for element in all_of(page, "main [id]")]
    assert len(ids) == len(set(ids))
    for link in all_of(page, "a[href^='#']"):
        assert page.execute_script("return !!document.querySelector(arguments[0].hash)", link)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(page, scheme):
    emulate(page, "", scheme)
    settle(page)
    names = ("--paper", "--ink", "--soft", "--link", "--good", "--good-tint", "--bad", "--bad-tint")
    read = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim()"
    colours = {name: page.execute_script(read, name) for name in (*names, "--mixed", "--mixed-tint")}
    pairs = [(name, "--paper") for name in ("--ink", "--soft", "--link")]
    pairs += [(name, f"{name}-tint") for name in ("--good", "--bad", "--mixed")]
    for text, ground in pairs:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    drawn = page.execute_script(
        "return document.getElementById('figure-exp1')._fullData.map((trace) => trace.line.color)"
    )
    for colour in drawn:
        assert colour.startswith("rgb") or contrast(colour, colours["--paper"]) >= 1.9, colour


def contrast(one, other):
    def luminance(colour):
        values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_on_paper_pictures_take_the_place_of_interactive_figures(page):
    assert not any(image.is_displayed() for image in all_of(page, "img.static"))
    emulate(page, "print", "light")
    assert all(image.is_displayed() for image in all_of(page, "img.static"))
    assert not any(plot.is_displayed() for plot in all_of(page, ".plot, .legend"))
