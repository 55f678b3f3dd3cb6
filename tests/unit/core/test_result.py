"""Results: what they show, keep and say."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.contract.cases import assert_same_result

import dualanchor as da
from dualanchor.core.citations import CITATIONS
from dualanchor.core.result import jsonable, to_json

PROBLEM = da.problems.affine(dimension=4, sigma=0.1)


def one():
    return da.solve(PROBLEM, da.DualOHM(1.0, 20), record=4)


def many():
    return da.solve(PROBLEM, da.DualOHM(1.0, 20), reps=3, record=4)


def grid():
    return da.solve(PROBLEM, [da.SGDA(0.1), da.SGDA(1e12, 3), da.SGDA(0.2)], budget=50, reps=2, record=4, check=False)


def blind():
    problem = da.Problem(da.Sampler(lambda x, n, rng: x), np.ones(2, np.float32), name="own")
    return da.solve(problem, da.HalpernPAGE(0.1, 3, 1), budget=30)


KINDS = [one, many, grid, blind]


@pytest.mark.parametrize("make", KINDS)
def test_a_saved_result_is_loaded_as_it_was(make, tmp_path):
    result = make()
    path = result.save(tmp_path / "result")
    loaded = da.Result.load(path)
    assert_same_result(result, loaded)
    assert repr(result) == repr(loaded)
    assert type(loaded.nit) is type(result.nit)
    assert type(loaded.success) is type(result.success)
    assert loaded.x.dtype == result.x.dtype
    assert loaded.state.keys() == result.state.keys()
    assert loaded.message == result.message


@pytest.mark.parametrize("make", KINDS)
def test_every_value_has_the_shape_of_the_run(make):
    result = make()
    shape = {one: (), many: (3,), grid: (3, 2), blind: ()}[make]
    assert result.shape == shape
    assert result.x.shape == (*shape, result.x.shape[-1])
    for name in ("success", "status", "nit", "nfev", "draws"):
        assert np.shape(getattr(result, name)) == shape
    if not shape:
        assert isinstance(result.nit, int)
        assert isinstance(result.nfev, int)
        assert isinstance(result.draws, int)
        assert isinstance(result.success, bool)
        assert result.residual is None or isinstance(result.residual, float)


def test_the_text_is_short_and_says_what_matters():
    text = repr(one())
    assert len(text.splitlines()) <= 10
    for part in ("s-dual-ohm on affine", "reached its horizon", "True", "19", "(true)"):
        assert part in text
    text = repr(many())
    for part in ("3 of 3", "array of shape (3, 4)", "median"):
        assert part in text
    text = repr(grid())
    for part in ("2 of 6 diverged", "4 of 6 stopped because", "4 of 6"):
        assert part in text
    assert "not known" in repr(blind())


@pytest.mark.parametrize("make", KINDS)
def test_keys_are_attributes(make):
    result = make()
    assert set(result) == set(result.keys()) == set(dict(result))
    assert {"x", "success", "status", "message", "nit", "nfev", "fun", "draws", "findings", "claim"} <= set(result)
    for name in result:
        assert result[name] is getattr(result, name) or result[name] == getattr(result, name), name
    assert result["fun"] is result.residual
    assert "x" in result
    assert "shape" not in result
    assert len(result) == len(list(result))
    with pytest.raises(KeyError):
        result["raise_for_status"]


@pytest.mark.parametrize("make", KINDS)
def test_a_notebook_shows_the_same_as_a_table(make):
    result = replace(make(), problem={"name": "<own> & problem"})
    html = result._repr_html_()
    assert "&lt;own&gt; &amp; problem" in html
    assert "<own>" not in html
    assert html.count("<tr>") == len(repr(result).splitlines())


def test_many_notes_are_cut_to_one_screen_but_no_warning_is():
    notes = (da.Finding.of("no-L"), da.Finding.of("idle-workers", workers=2), da.Finding.of("resumed", step=3))
    alarm = da.Finding.of("not-replayable")
    lines = repr(replace(one(), findings=(*notes * 7, alarm))).splitlines()
    assert len(lines) == 24
    assert sum("[not-replayable]" in line for line in lines) == 1
    assert lines[-1].strip().startswith("note: ")
    assert "more in findings: " in lines[-1]
    assert repr(replace(one(), findings=(alarm,) * 30)).count("[not-replayable]") == 30


def test_findings_claim_and_certificate_come_back_from_a_file(tmp_path):
    theorem = da.Theorem("theorem-a", "Theorem A", ("Assumption 1",))
    certificate = da.certify(PROBLEM, one(), samples=64)
    result = replace(
        one(),
        findings=(da.Finding.of("residual-grew", end=np.inf), da.Finding("no-L", da.Severity.WARNING)),
        claim=da.Claim(da.ClaimKind.THEOREM_RMS, 0.1, None, theorem, theorem.assumptions),
        certificate=certificate,
    )
    loaded = da.Result.load(result.save(tmp_path / "result"))
    assert (loaded.findings, loaded.claim, loaded.certificate) == (result.findings, result.claim, certificate)
    assert repr(loaded) == repr(result)


@pytest.mark.slow
def test_plotting_needs_no_other_import():
    pytest.importorskip("matplotlib")
    code = (
        "import matplotlib; matplotlib.use('Agg')\n"
        "from dualanchor.problems import affine\nfrom dualanchor.run.solve import solve\n"
        "solve(affine(dimension=3), budget=20).plot()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_long_points_are_cut():
    result = da.solve(da.problems.affine(dimension=1000), budget=5)
    assert "..." in repr(result)
    assert len(repr(result)) < 600


def test_the_message_counts_what_is_mixed():
    assert one().message == da.Status.HORIZON.value
    assert many().message == da.Status.HORIZON.value
    assert grid().message.count(" of 6 ") == 2


def test_every_status_is_a_sentence():
    for status in da.Status:
        assert status.value[0].islower()
        assert len(status.value) > 10
    wanted = {status for status in da.Status if status.ended_as_asked}
    assert {status.name for status in da.Status} - {status.name for status in wanted} == {
        "RUNNING",
        "DIVERGED",
        "REFUSED",
        "FAILED",
        "INTERRUPTED",
    }


def test_a_table_has_one_line_per_row_and_recorded_step():
    pandas = pytest.importorskip("pandas")
    result = da.solve(PROBLEM, [da.SGDA(0.1), da.SGDA(0.2)], budget=20, reps=3, record=4)
    frame = result.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["configuration", "replication", "k", "draws", "evals", "residual"]
    assert len(frame) == 2 * 3 * 5
    last = frame[frame.k == 20].set_index(["configuration", "replication"]).residual
    for configuration in range(2):
        for replication in range(3):
            assert last[configuration, replication] == result.residual[configuration, replication]
    alone = one().to_frame()
    assert set(alone.configuration) == set(alone.replication) == {0}
    assert "residual" not in blind().to_frame().columns


def test_without_pandas_the_table_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(da.errors.MissingExtraError, match="pip install"):
        one().to_frame()


def test_raising_for_the_status():
    result = one()
    assert result.raise_for_status() is result
    bad = grid()
    with pytest.raises(da.errors.UnsuccessfulError, match="sgda on affine") as caught:
        bad.raise_for_status()
    assert caught.value.result is bad


@pytest.mark.parametrize("entry", da.list_methods(), ids=lambda entry: entry.id)
def test_every_method_can_be_cited(entry):
    assert entry.cls.citation in CITATIONS
    assert entry.title


def test_citations_name_the_library_and_the_source():
    text = one().cite()
    assert text.count("@") >= 2
    assert "dualanchor" in text
    assert "Yoon" in text
    for key, entry in CITATIONS.items():
        assert entry.startswith("@"), key
        assert entry.count("{") == entry.count("}"), key


def test_the_text_of_a_history_is_a_line():
    history = da.solve(da.problems.affine(dimension=4), budget=100).history
    first, last = history.residual[[0, -1]]
    text = f"65 points of 1 row, k = 0 to 99, evals = 0 to 99, residual = {first:.4g} to {last:.4g}"
    assert repr(history) == f"History({text})"
    several = da.solve(da.problems.affine(dimension=4), budget=100, reps=3).history
    first, last = (np.mean([several.of(row).residual[at] for row in range(3)]) for at in (0, -1))
    assert repr(several).startswith("History(195 points of 3 rows, k = 0 to 99,")
    assert repr(several).endswith(f"mean residual = {first:.4g} to {last:.4g})")
    assert "residual" not in repr(blind().history)
    assert repr(da.solve(da.problems.affine(), budget=9, record=0).history).startswith("History(")


def test_a_history_can_be_cut_into_rows():
    history = many().history
    assert len(history) == 15
    assert [len(history.of(row)) for row in range(3)] == [5, 5, 5]
    assert len(history.of(7)) == 0
    assert list(history.columns()) == ["row", "k", "draws", "evals", "residual"]


@pytest.mark.parametrize("spoil", ["format", "other"])
def test_a_file_that_is_no_result_is_refused(spoil, tmp_path):
    path = tmp_path / "file"
    if spoil == "format":
        from dualanchor.core.files import write_arrays

        write_arrays(path, {"format": "dualanchor-result-0"}, {})
    else:
        da.solve(PROBLEM, "sgda", budget=5, checkpoint=path)
    with pytest.raises(da.errors.CheckpointError, match=r"Result.load reads files written by Result.save"):
        da.Result.load(path)


def test_numbers_for_json():
    value = {"a": np.float64(1.5), 2: [np.inf, np.nan, -np.inf, np.int64(3), True, None], "s": da.Status.BUDGET}
    assert jsonable(value) == {"a": 1.5, "2": [None, None, None, 3, True, None], "s": "BUDGET"}
    assert jsonable((np.array([[1, 2]]), da.Tapered(2.0))) == [[[1, 2]], "Tapered(C=2.0)"]
    assert to_json({"x": np.nan, "y": "ü"}) == '{"x": null, "y": "ü"}'


def test_findings_speak_of_the_right_horizon():
    """In a grid with several horizons each is its own; a finding must not name one that the row does not have."""
    result = da.solve(PROBLEM, [da.DualOHM(1.0, 9), da.DualOHM(1.0, 80)], budget=50)
    assert result.status[:, 0].tolist() == [da.Status.HORIZON, da.Status.BUDGET]
    (found,) = result.findings
    assert found == da.Finding.of("stopped-early", step=50, horizon=80, runs=1, of=2)
    assert da.solve(PROBLEM, da.DualOHM(1.0, 51), budget=50).findings == ()


def test_one_replication_is_a_result_of_its_own(tmp_path):
    result = many().row(2)
    assert set(result.history.row) == {0}
    assert set(result.to_frame()["replication"]) == {0}
    matplotlib = pytest.importorskip("matplotlib.figure")
    assert len(result.plot(matplotlib.Figure().subplots()).lines) == 1
    assert_same_result(result, da.Result.load(result.save(tmp_path / "row")))
