"""Results as a notebook shows them: tables with the content of the printed text, in a real browser, and figures."""

import re

import numpy as np
import pytest
from tests.integration.browser import all_of, emulate, errors, resize

import dualanchor as da


def sample(x, n, rng):
    return x - [1.0, 2.0] + rng.normal(size=(n, 2))


@pytest.fixture(scope="module")
def shown():
    result = da.root(sample, np.zeros(2), eps=0.3, L=1.0, sigma=1.5, D=3.0, seed=1)
    compared = da.compare(da.problems.affine(mu=0.1), ["sgda", "s-dual-ohm"], budget=200, seeds=2, jobs=1)
    certificate = da.certify(da.Sampler(sample), np.ones(2), samples=500)
    one = {"Result": result, "Plan": result.plan, "Certificate": certificate, "Comparison": compared}
    return one | {"Calibration": result.calibration}


def words(text):
    """Words and numbers, without punctuation that only one of the two forms has."""
    return set(re.findall(r"[^\s:,()]+", text))


@pytest.mark.parametrize("name", ["Result", "Plan", "Certificate", "Comparison", "Calibration"])
def test_the_table_says_what_the_text_says(shown, name):
    html = shown[name]._repr_html_()
    plain = re.sub(r"<[^>]*>", " ", html)
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&#x27;", "'"), ("&quot;", '"'), ("&amp;", "&")):
        plain = plain.replace(entity, sign)
    assert words(repr(shown[name])) <= words(plain) | {"mean", "final", "residual"}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
def test_tables_in_a_browser(browser, shown, tmp_path, scheme, width):
    emulate(browser, "", scheme)
    resize(browser, width)
    page = tmp_path / "page.html"
    body = "".join(one._repr_html_() for one in shown.values())
    page.write_text(f"<!doctype html><meta charset='utf-8'><title>t</title>{body}", encoding="utf-8")
    browser.get(page.as_uri())
    tables = all_of(browser, "table")
    assert len(tables) == len(shown)
    for table, one in zip(tables, shown.values(), strict=True):
        assert words(repr(one)) <= words(table.text) | {"mean", "final", "residual"}
        assert table.size["height"] > 20
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert errors(browser) == []


def test_nothing_in_a_table_is_markup():
    html = da.Certificate(1.0, 0.5, 2.0, 1.0, 1.0, 0.95, 8, 4, "min")._repr_html_()
    assert "||F(x)|| &lt;= 2" in html
    problem = da.Problem(da.AdditiveNoise(lambda x: x, 0.1), np.ones(2), name="<script>alert(1)</script>")
    assert "<script" not in da.solve(problem, da.SGDA(0.1), budget=10)._repr_html_()


def test_figures(shown):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    plan, seen = shown["Plan"], shown["Calibration"]
    ax = plan.plot()
    (line, *_) = ax.get_lines()
    assert line.get_ydata()[0] == plan.batches["first"]
    assert line.get_ydata()[-1] == plan.batches["last"]
    assert ax.figure.axes[1].get_lines()[0].get_ydata()[-1] == plan.bound
    pyplot.close(ax.figure)

    restarted = da.plan(eps=0.05, L=5.0, sigma=1.5, D=3.0, mu=0.1)
    ax = restarted.plot()
    assert len(ax.figure.axes[1].get_lines()[0].get_xdata()) == len(restarted.stages) > 1
    pyplot.close(ax.figure)

    ax = seen.plot()
    labels = [one.get_text() for one in ax.get_yticklabels()]
    assert {"sigma at x0", "‖F(x0)‖", "L, local"} <= set(labels)
    assert ax.get_lines()[0].get_xdata()[0] == seen.sigma
    pyplot.close(ax.figure)

    for one in (plan, seen, shown["Result"]):
        own = pyplot.figure().subplots()
        assert one.plot(own) is own
    pyplot.close("all")


def test_a_budget_run_is_plotted_with_its_way():
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    result = da.root(sample, np.zeros(2), budget=4000, seed=1)
    ax = result.plot()
    labels = {one.get_text() for one in ax.get_legend().get_texts()}
    assert {"estimates during the run", "two standard errors", "a stage ends", "upper bound, confidence 95 %"} <= labels
    way = ax.get_lines()[0]
    assert 5 < len(way.get_xdata()) < len(result.history)  # estimates that do not stand out of their noise are pooled
    assert np.nanmax(way.get_ydata()) == way.get_ydata()[0] == pytest.approx(result.history.residual[0])
    pyplot.close(ax.figure)


def test_estimates_are_pooled_until_they_stand_out_of_their_noise():
    from dualanchor.report.figures import _pooled

    count, evals = 100, np.arange(100) * 10
    for square, pools in ((9.0, count), (0.0, 12)):
        history = da.History(*np.zeros((3, count), int), evals, np.full(count, np.sqrt(square)),
                             np.full(count, 4.0), np.full(count, 5), np.zeros(count, int))  # fmt: skip
        found, squares, errors, seen = _pooled(history, 1.0, np.inf)
        assert abs(len(found) - pools) <= 1
        assert (squares == square).all()
        assert (seen == (square > 0)).all()
        assert (errors > 0).all()
