"""What is drawn: means and bands, also where seeds diverged or only the end is known."""

import numpy as np
import pytest

from dualanchor.report.figures import draw
from dualanchor.report.page import interactive_figure
from dualanchor.report.panel_data import anchor_comparison, band_of, panels_of
from dualanchor.report.styles import MARKERS, STYLES, assign_styles
from dualanchor.studies.study import Curve, Study, final_statistics


def curve(residual, seeds=4, steps=20, end=100):
    k = np.tile(np.arange(steps + 1), seeds)
    seed = np.repeat(np.arange(seeds), steps + 1)
    evals = k * end // steps
    return Curve(seed, k, evals, np.array([residual(s, e) for s, e in zip(seed, evals, strict=True)], float))


def study_of(curves, panel="p", **more):
    methods = {}
    for name, one in curves.items():
        final = np.array([one.residual[one.seed == seed][-1] for seed in np.unique(one.seed)])
        statistics = final_statistics(final)
        methods[name] = {"method": name, "selected": {}, "final": statistics, "evals": 100, "grid": []}
    results = {
        "version": "0",
        "seeds": [0],
        "panels": {panel: {"budget": 100, "methods": methods, **more}},
        "claims": [],
    }
    return Study(results, {panel: curves}, {})


def test_band_is_mean_and_percentiles_over_seeds():
    values = np.random.default_rng(0).uniform(1, 2, size=(4, 21))
    drawn = band_of(curve(lambda s, e: values[s, e // 5]), 100)
    np.testing.assert_array_equal(drawn.evals, np.arange(101))
    np.testing.assert_allclose(drawn.mean[::5], values.mean(axis=0))
    np.testing.assert_allclose([drawn.low[::5], drawn.high[::5]], np.percentile(values, [5, 95], axis=0))
    np.testing.assert_array_equal(drawn.mean[1:5], drawn.mean[0])  # an iterate counts until the next is there


def test_a_curve_of_ends_is_not_drawn_before_them():
    ends = Curve(np.arange(3), np.full(3, 9), np.array([88, 90, 91]), np.array([1.0, 2.0, 3.0]))
    drawn = band_of(ends, 100)
    assert drawn.evals[0] == 91
    np.testing.assert_allclose(drawn.mean, 2.0)


@pytest.mark.parametrize("value", [np.inf, np.nan, 0.0])
def test_values_without_a_logarithm_are_left_out(value):
    drawn = band_of(curve(lambda s, e: value if e > 50 and (s == 1 or value == 0) else 1.0), 100)
    assert np.isfinite(drawn.mean[drawn.evals <= 50]).all()
    assert np.isnan(drawn.mean[drawn.evals > 54]).all()


@pytest.mark.filterwarnings("error")
def test_diverged_and_odd_curves_are_drawn():
    curves = {
        "s-dual-ohm": curve(lambda s, e: 10 / (1 + e)),
        "s-ohm": curve(lambda s, e: 10 * np.exp(e) if e < 50 else np.inf),
        "sgda": curve(lambda s, e: np.nan),
        "_$odd $": curve(lambda s, e: 0.0),
    }
    (panel,) = panels_of(study_of(curves, title="$\\broken{"))
    low, high = panel.limits()
    assert 0 < low < high < 10 * 100 * 2
    assert panel.label("s-ohm") == "S-OHM (diverged)"
    assert panel.best() == 0.0
    for content in draw([panel]).values():
        assert len(content) > 10_000
    traces = interactive_figure(panel)["data"]
    assert len(traces) == 2 * len(curves)
    for trace in traces:
        assert all(value is None or np.isfinite(value) for value in trace["y"])


def test_a_panel_without_curves_is_drawn():
    study = study_of({"sgda": curve(lambda s, e: 1.0)})
    study.curves = {}
    (panel,) = panels_of(study)
    assert panel.bands == {}
    assert draw([panel])["png"].startswith(b"\x89PNG")


def test_names_of_files_are_safe_and_distinct():
    study = study_of({"sgda": curve(lambda s, e: 1.0)})
    (panel,) = study.results["panels"].values()
    study.results["panels"] = dict.fromkeys(["../a b", "..-a-b", "A-b", "appendix", "∞", "exp3-low"], panel)
    assert [panel.name for panel in panels_of(study)] == ["a-b", "a-b-2", "A-b-3", "appendix-2", "panel", "exp3-low"]
    study.results["panels"] = dict.fromkeys(["x" * 300, "x" * 400], panel)
    names = [panel.name for panel in panels_of(study)]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 200  # file systems take up to 255


def test_appendix_has_the_panels_with_a_tuned_anchor():
    curves = {name: curve(lambda s, e: 1.0) for name in ("s-dual-ohm", "sgda", "s-ohm", "s-ohm-tuned")}
    (panel,) = anchor_comparison(panels_of(study_of(curves)))
    assert list(panel.bands) == list(panel.panel["methods"]) == ["s-dual-ohm", "s-ohm", "s-ohm-tuned"]
    assert anchor_comparison(panels_of(study_of({"sgda": curves["sgda"]}))) == []


def test_styles_differ_without_colour_and_can_be_drawn_on_a_page():
    unknown = [f"method-{i}" for i in range(8)]
    chosen = assign_styles([*STYLES, *unknown, *unknown])
    assert [chosen[name].label for name in unknown] == unknown
    assert {style.marker for style in chosen.values()} <= set(MARKERS)
    signs = [(style.marker, style.dash) for style in chosen.values()]
    assert len(set(signs)) == len(signs) == len(STYLES) + len(unknown)
    assert len({style.marker for style in STYLES.values()}) == len(STYLES)
    assert [name for name, style in chosen.items() if style.emphasised] == ["s-dual-ohm"]
    assert {name for name, style in chosen.items() if style.ours} == {"averaged", "dual-ohm", "auto"}
    assert chosen["auto"].label == "auto*"
