"""The landing page, a gallery page and the explainer as readers get them, in a real browser without a network."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.integration.browser import all_of, emulate, errors, resize

import dualanchor as da

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONF = """
import runpy
real = runpy.run_path({conf!r})
globals().update({{name: value for name, value in real.items() if name[0] != "_"}})
extensions = ["myst_parser", "sphinx_gallery.gen_gallery", "mathml"]
sphinx_gallery_conf |= {{"examples_dirs": "examples"}}
"""
GALLERY = "gallery/plot_scipy_root.html"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Three pages with the theme and all that they load; links to other pages are not followed."""
    pytest.importorskip("furo")
    source = tmp_path_factory.mktemp("docs")
    for name in ("index.md", "explainer.md"):
        shutil.copy(DOCS / name, source)
    for name in ("_static", "figures"):
        shutil.copytree(DOCS / name, source / name)
    (source / "examples").mkdir()
    for name in ("GALLERY_HEADER.rst", "plot_scipy_root.py"):
        shutil.copy(ROOT / "examples/gallery" / name, source / "examples")
    (source / "conf.py").write_text(CONF.format(conf=str(DOCS / "conf.py")), encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-Q", "-b", "html", source, source / "out"]
    subprocess.run(command, check=True, env={**os.environ, "DUALANCHOR_GALLERY": "small"})
    return source / "out"


@pytest.fixture
def explainer(browser, built):
    emulate(browser, "", "light")
    resize(browser, 1300)
    browser.get((built / "explainer.html").as_uri())
    assert browser.execute_script("return document.querySelector('.explainer').dataset.ready") == "yes"
    return browser


def move(page, part, value):
    script = """
        const slider = document.querySelector(`.explainer [data-part="${arguments[0]}"]`);
        slider.value = arguments[1];
        slider.dispatchEvent(new Event("input", {bubbles: true}));
    """
    page.execute_script(script, part, value)


def drawn(page, part):
    return page.execute_script(f"return document.querySelector('.explainer [data-part=\"{part}\"]').innerHTML")


def call(page, expression, *arguments):
    return page.execute_script(f"const e = window.dualanchorExplainer; return {expression}", *arguments)


def test_sliders_move_the_curves(explainer):
    parts = ("ohm", "dual", "rounds", "travel", "horizons")
    before = {part: drawn(explainer, part) for part in parts}
    assert all("<path" in text for text in before.values())
    for slider, value, changed in (
        ("horizon", 60, parts),
        ("batch", 4, ("ohm", "dual", "rounds", "horizons")),
        ("noise", 0.8, ("ohm", "dual", "rounds", "horizons")),
        ("round", 50, ("travel", "ohm", "dual")),
    ):
        move(explainer, slider, value)
        after = {part: drawn(explainer, part) for part in parts}
        assert all(after[part] != before[part] for part in changed), slider
        before = after
    seen = drawn(explainer, "ohm")
    explainer.find_element("css selector", ".explainer button").click()
    assert drawn(explainer, "ohm") != seen
    for slider, value in (("horizon", 4), ("noise", 0), ("round", 0), ("horizon", 120), ("round", 118)):
        move(explainer, slider, value)
        for part in parts:
            assert "NaN" not in drawn(explainer, part)
            assert "Infinity" not in drawn(explainer, part)
    assert errors(explainer) == []


def test_the_weights_are_those_of_the_library(explainer):
    from dualanchor.theory import weights

    for N in (2, 5, 40, 120):
        np.testing.assert_allclose(call(explainer, "e.roundWeights(arguments[0])", N), weights.round_weights(N))
        found = call(explainer, "e.anchorMultipliers(arguments[0])", N)
        np.testing.assert_allclose(found, weights.anchor_multipliers(N, 1.0))
    left = [call(explainer, "e.leaveOneOut(40, 10, arguments[0])", k) for k in range(11, 40)]
    np.testing.assert_allclose(left, weights.leave_one_out(40, 10, np.arange(11, 40)))


@pytest.mark.parametrize(
    ("method", "path", "gains"), [("OHM", "ohmPath", "anchorGains"), ("DualOHM", "dualPath", "dualGains")]
)
def test_the_paths_are_those_of_the_library(explainer, method, path, gains):
    N, angle = 25, call(explainer, "e.ANGLE")
    noise = np.array(call(explainer, "e.normals(arguments[0], 3)", N - 1))
    R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    rounds = iter(noise)
    sampler = da.Sampler(lambda x, n, rng: x - R @ x - next(rounds), replayable=False)
    options = {"horizon": N} if method == "DualOHM" else {}
    problem = da.Problem(sampler, np.array([1.0, 0.0]))
    result = da.solve(problem, getattr(da, method)(1.0, **options), stop=da.Steps(N - 1))
    shown = np.array(call(explainer, f"e.{path}(arguments[0])", noise.tolist()))
    np.testing.assert_allclose(shown[-1], result.x, atol=1e-12)

    # the pieces of the chain add up: the end without noise and what each round leaves
    factors = np.array(call(explainer, f"e.{gains}({N})")) @ [1, 1j]
    pieces = factors * (noise @ [1, 1j])
    clean = np.array(call(explainer, f"e.noiseless({N})")) @ [1, 1j]
    assert clean + pieces.sum() == pytest.approx(result.x @ [1, 1j], abs=1e-12)
    sigma, B = 0.7, 4
    shown = call(explainer, f"e.residuals({N}, {B}, {sigma})")["ohm" if method == "OHM" else "dual"]
    square = abs(clean) ** 2 + sigma**2 / B * (abs(factors) ** 2).sum()
    assert shown == pytest.approx(np.linalg.norm([1 - np.cos(angle), np.sin(angle)]) * np.sqrt(square))


def test_dual_ohm_stays_within_the_lemma(explainer):
    for s in (0, 10, 30):
        left = call(explainer, f"e.travel(e.dualPath, 40, {s})")
        bound = da.theory.weights.leave_one_out(40, s, np.arange(s + 1, 40))
        assert (np.array(left) <= bound + 1e-9).all()


@pytest.mark.parametrize("name", ["index.html", "explainer.html", GALLERY, "gallery/index.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
def test_pages_fit_the_screen(browser, built, name, scheme, width):
    emulate(browser, "", scheme)
    resize(browser, width)
    browser.get_log("performance")
    browser.get((built / name).as_uri())
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    for one in all_of(browser, ".explainer svg[role=img], .explainer input, .cards > *, .sphx-glr-script-out"):
        box = one.rect
        assert box["width"] > 60
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    broken = "return [...document.images].filter((one) => !(one.complete && one.naturalWidth)).map((one) => one.src)"
    assert browser.execute_script(broken) == []
    assert errors(browser) == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert {url.split(":")[0] for url in loaded} <= {"file", "data"}


def test_the_gallery_page_has_its_table_and_a_figure_for_light_and_dark(browser, built):
    browser.get((built / GALLERY).as_uri())
    printed = " ".join(one.text for one in all_of(browser, ".sphx-glr-script-out"))
    assert all(word in printed for word in ("da.scipy.root", "samples", "certificate", "truth"))
    assert all_of(browser, ".sphx-glr-download a")
    (figure,) = (built / "_images").glob("sphx_glr_plot_scipy_root_001.png")
    from PIL import Image  # comes with matplotlib

    with Image.open(figure) as image:
        assert image.convert("RGBA").getpixel((0, 0))[3] == 0  # no background


def test_each_slider_has_a_name():
    text = (DOCS / "explainer.md").read_text(encoding="utf-8")
    assert len(re.findall(r'type="range"[^>]*aria-label="[^"]+"', text)) == 4
