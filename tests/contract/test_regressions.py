"""Defects that were found once, each with the smallest run that showed it."""

from dataclasses import dataclass

import numpy as np
import pytest

import dualanchor as da


def own(operator, x0=(1.0, 2.0), sigma=0.0, **options):
    return da.Problem(da.AdditiveNoise(operator, sigma, **options), np.array(x0), constants=da.Constants(L=2.0))


def test_a_checkpoint_of_other_noise_or_data_or_constants_is_refused(tmp_path):
    path = tmp_path / "run"
    da.solve(own(lambda x: x, sigma=0.1), da.SGDA(0.1), budget=20, checkpoint=path)
    with pytest.raises(da.errors.CheckpointError, match="sigma"):
        da.solve(own(lambda x: x, sigma=0.2), da.SGDA(0.1), budget=20, checkpoint=path)
    rng = np.random.default_rng(0)
    sums = [da.FiniteSum.rank_one(rng.normal(size=(9, 2))) for _ in range(2)]
    da.solve(da.Problem(sums[0], np.ones(2)), da.SGDA(0.1), budget=20, checkpoint=tmp_path / "sum")
    with pytest.raises(da.errors.CheckpointError, match="oracle"):
        da.solve(da.Problem(sums[1], np.ones(2)), da.SGDA(0.1), budget=20, checkpoint=tmp_path / "sum")


def test_a_run_that_was_taken_up_says_so(tmp_path):
    problem = own(lambda x: x)
    first = da.solve(problem, da.SGDA(0.1), budget=20, checkpoint=tmp_path / "run")
    again = da.solve(problem, da.SGDA(0.1), budget=20, checkpoint=tmp_path / "run")
    assert first.findings == ()
    assert again.findings[-1].code == "resumed"


def test_an_operator_that_fails_while_recording_leaves_a_checkpoint_that_goes_on(tmp_path):
    """The counters saved must be those of the step at which it failed, not of an earlier one."""
    switch = {"on": True}

    class Fragile(da.Oracle):
        def draw(self, streams, size):
            return da.Batch(size, 0.01 * streams.normals())

        def mean(self, x, batch):
            return x + batch.data

        def operator(self, x):
            if switch["on"] and abs(x).max() < 0.5:
                raise RuntimeError("not now")
            return x

    problem = da.Problem(Fragile(), np.ones(3))
    options = {"budget": 300, "record": [0, 1, 20, 40, 60, 200], "checkpoint": tmp_path / "run"}
    with pytest.raises(da.errors.OracleError, match="not now"):
        da.solve(problem, da.SGDA(0.02), **options)
    switch["on"] = False
    resumed = da.solve(problem, da.SGDA(0.02), **options)
    whole = da.solve(problem, da.SGDA(0.02), budget=300, record=options["record"])
    assert (resumed.nit, resumed.nfev) == (whole.nit, whole.nfev) == (300, 300)
    np.testing.assert_array_equal(resumed.x, whole.x)


def test_overflow_within_the_operator_is_divergence():
    A = np.array([[1.0, 2.0], [-2.0, 1.0]])
    result = da.solve(own(lambda x: A @ x**3, (3.0, 4.0)), [da.SGDA(0.5), da.SGDA(1e-4)], budget=200)
    assert [status.name for status in result.status[:, 0]] == ["DIVERGED", "BUDGET"]


def test_nan_at_a_moderate_point_is_still_a_defect():
    with pytest.raises(da.errors.OracleError, match="NaN"):
        da.solve(own(lambda x: np.where(x > 0.5, x, np.nan)), da.SGDA(0.1), budget=200)


def test_data_that_are_not_numbers_are_a_defect_and_no_divergence():
    U = np.random.default_rng(0).standard_normal((50, 6))
    U[17, 3] = np.nan
    problem = da.Problem(da.FiniteSum.rank_one(U), x0=np.ones(6), constants=da.Constants(L=1.0))
    with pytest.raises(da.errors.OracleError, match="Got NaN"):
        da.solve(problem, da.SGDA(0.01), budget=2000)


def test_a_subclass_with_a_formula_of_its_own_takes_its_own_steps():
    @dataclass(frozen=True)
    class Slower(da.DualOHM):
        def update(self, k, s, G):
            s.x -= 0.01 * G

    problem = da.problems.worst_case_nonexpansive(dimension=11)
    slower = da.solve(problem, Slower(0.5, horizon=100))
    np.testing.assert_allclose(slower.x, da.solve(problem, da.SGDA(0.01), stop=da.Steps(99)).x, rtol=1e-12)


def test_a_reused_buffer_does_not_spoil_differences():
    buffer = np.empty((1, 3))

    def operator(x):
        return np.multiply(x, 2.0, out=buffer)

    method = da.HalpernPAGE(0.3, 4, 1)
    reused = da.solve(own(operator, np.ones(3), vectorized=True), method, stop=da.Steps(20), record=0)
    fresh = da.solve(own(lambda x: 2.0 * x, np.ones(3)), method, stop=da.Steps(20), record=0)
    np.testing.assert_allclose(reused.x, fresh.x, rtol=1e-12)


def test_a_list_of_sizes_that_runs_out_is_explained():
    with pytest.raises(da.errors.ArgumentError, match="one for each round"):
        da.solve(own(lambda x: x), da.SGDA(0.1, batch_size=[1, 2, 3]), stop=da.Target(1e-9))


def test_an_array_of_sizes_in_an_estimator_survives_rows_that_retire():
    method = da.DualOHM(1.0, 10, estimator=da.Minibatch(np.array([1] * 9)))
    assert (da.solve(own(lambda x: x), method, reps=2).nfev == 9).all()


@pytest.mark.parametrize("steps", [(1, 2), (np.float64(0.3), np.float64(0.7))], ids=["integers", "NumPy numbers"])
def test_single_precision_stacks_with_other_kinds_of_numbers(steps):
    problem = da.Problem(
        da.AdditiveNoise(lambda x: np.float32(0.5) * x, 0.1, vectorized=True), np.ones(4, dtype=np.float32)
    )
    methods = [da.DualOHM(step, 30) for step in steps]
    stacked = da.solve(problem, methods, check=False)
    for i, method in enumerate(methods):
        np.testing.assert_array_equal(stacked.x[i, 0], da.solve(problem, method, check=False).x)


def test_either_of_two_targets_is_a_success():
    result = da.solve(own(lambda x: x), da.SGDA(0.1), stop=da.Target(0.1) | da.Target(0.5), budget=500)
    assert (result.status, result.success) == (da.Status.TARGET, True)


def test_a_residual_that_grew_is_mentioned():
    result = da.solve(own(lambda x: 5.0 * x), da.SGDA(1.0), stop=da.Steps(10))
    assert any(found.code == "residual-grew" for found in result.findings)
    assert da.solve(own(lambda x: x), da.SGDA(0.5), stop=da.Steps(10)).findings == ()


def test_rows_that_live_longer_than_expected_are_recorded_to_their_end():
    problem = da.problems.finite_sum_cocoercive(components=20, dimension=20, rank=19)
    result = da.solve(problem, da.HalpernPAGE(1.0, 50, 1), budget=1500, reps=5, record=50)
    for row in range(5):
        evals = result.history.of(row).evals
        assert np.diff(evals[evals > 1000]).max() < 150  # 1500 / 50 on average, and a large batch now and then


def test_a_problem_keeps_its_start():
    x0 = np.ones(2)
    problem = own(lambda x: x, x0)
    x0 += 100
    assert da.solve(problem, da.SGDA(0.1), stop=da.Steps(0)).x.tolist() == [1.0, 1.0]


def test_a_diverged_configuration_is_never_selected():
    def sample(x, n, rng):
        q = rng.normal(size=(n, x.size))
        return (q * (q @ x)[:, None]).mean(axis=0)

    problem = da.Problem(da.Sampler(sample), np.ones(5), constants=da.Constants(L=1.0))
    comparison = da.compare(problem, ["sgda"], budget=500, seeds=2, jobs=1)
    assert np.isfinite(comparison.methods["sgda"]["final"]["mean"])
    assert comparison.methods["sgda"]["selected"]["step_size"] < 1.0


def test_an_interrupted_piece_is_not_kept(tmp_path, monkeypatch):
    from dualanchor.studies import pieces
    from dualanchor.studies.panel import parse_panel
    from dualanchor.studies.study import run_study

    panel = parse_panel('id = "p"\nproblem = "affine"\nbudget = 50\n[methods.sgda.grid]\nstep_size = [0.1]\n', "p.toml")
    real = pieces.solve

    def interrupted(*args, **options):
        result = real(*args, **options)
        result.status[...] = da.Status.INTERRUPTED
        return result

    monkeypatch.setattr(pieces, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_study([panel], seeds=2, folder=tmp_path, jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_in_the_store_are_left_alone(tmp_path):
    from dualanchor.studies.pieces import Store

    store = Store(tmp_path)
    path = store.path({"seed": 1}, "a" * 16)
    path.with_stem(path.stem[:-16] + "b" * 16).write_text("of other code")
    (tmp_path / "mydata.npz").write_text("mine")
    assert (store.path({"seed": 1}, "a" * 16), store.replaced) == (path, 1)
    assert [one.name for one in tmp_path.iterdir()] == ["mydata.npz"]
