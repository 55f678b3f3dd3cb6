"""Step tables: read off the methods themselves, run again, and reflected in the anti-diagonal (H-duality)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lemmas.statements import anti_transpose

import dualanchor as da
from dualanchor.methods import step_table as module
from dualanchor.theory import step_table

HORIZONS = range(2, 65)
PAIRS = [
    (da.OHM(0.7), lambda N: da.DualOHM(0.7, N)),
    (da.OCHalpern(0.4, contraction=0.9), lambda N: da.DualOCHalpern(0.4, N, contraction=0.9)),
    (da.FEG(0.3), lambda N: da.DualFEG(0.3, N)),
    (da.SGDA(0.3), lambda N: da.SGDA(0.3)),
    (da.SEG(0.3), lambda N: da.SEG(0.3)),
]
LINEAR = {
    "one evaluation": da.DualOHM(0.6, 12, batch_size=da.Tapered(9.0)),
    "a schedule": da.OHM(0.6, 12, batch_size=da.Growing(0.7)),
    "two evaluations": da.FEG(0.2, batch_size=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    "a fading anchor": da.OCHalpern(0.5, 12, contraction=0.8),
    "a mean of iterates": da.averaged(da.SEG(0.2)),
    "steps that decrease": da.DecreasingSGDA(0.5, mu=0.3),
    "recursive anchors": da.RAIN(0.2, anchor_weight=0.1, growth=0.1),
    "loops": da.RAINDoubleLoop(0.2, 0.3, lengths=(2, 1), epochs=(2, 1), halvings=(0, 0)),
}


@given(N=st.integers(2, 60), alpha=st.floats(0.01, 10.0))
def test_tables_are_anti_transposes(N: int, alpha: float) -> None:
    anti_transpose(da.OHM, da.DualOHM, N, alpha)


@given(N=st.integers(2, 40), alpha=st.floats(0.01, 10.0))
def test_ohm_has_the_published_table(N: int, alpha: float) -> None:
    """On the diagonal k/(k+1), below it -j/(k(k+1)), k and j from 1."""
    k = np.arange(1, N)[:, None]
    j = k.T
    published = np.where(k == j, k / (k + 1), np.where(j < k, -j / (k * (k + 1)), 0.0))
    np.testing.assert_allclose(step_table(da.OHM(alpha), N), published, rtol=0, atol=1e-13)


@pytest.mark.parametrize("make", [da.OHM, da.DualOHM])
def test_tables_look_at_the_past_only(make: Any) -> None:
    table = step_table(make(0.7, 12))
    assert not np.triu(table, 1).any()
    assert (np.diag(table) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "dual"), PAIRS, ids=lambda one: getattr(one, "id", ""))
def test_duals_are_the_known_ones_and_duals_of_duals_the_methods(method: da.Method, dual: Any) -> None:
    for N in HORIZONS:
        once = da.dual(method, N)
        np.testing.assert_allclose(once.table, step_table(dual(N), N), rtol=0, atol=1e-14)
        np.testing.assert_allclose(da.dual(once).table, step_table(method, N), rtol=0, atol=1e-14)


@pytest.mark.parametrize("wrong", [np.transpose, lambda table: table[::-1, ::-1]])
def test_transposed_or_turned_tables_look_ahead(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.step_tables, "anti_transpose", wrong)
    with pytest.raises(da.errors.ArgumentError, match="zero above its diagonal"):
        da.dual(da.OHM(0.7, 9))


def test_ohm_is_not_its_own_dual() -> None:
    assert np.abs(step_table(da.OHM(0.7, 9)) - step_table(da.DualOHM(0.7, 9))).max() > 0.1


@pytest.mark.parametrize("kind", LINEAR)
def test_the_table_runs_as_the_method_does(kind: str) -> None:
    """The same samples in the same order, on an operator that is not affine: the same end and the same counts."""
    method, N = LINEAR[kind], LINEAR[kind].horizon or 12
    sizes = da.theory.step_tables.read(method, N).sizes
    by_table = da.StepTable(method.step_size, step_table(method, N), sizes)
    problem = da.Problem(da.AdditiveNoise(lambda x: np.tanh(x) + x[..., ::-1] * [1, -1], 0.3), [1.0, -2.0])
    one, two = (da.solve(problem, m, stop=da.Steps(n), seed=5) for m, n in ((method, N - 1), (by_table, len(sizes))))
    assert (one.nfev, one.draws) == (two.nfev, two.draws)
    np.testing.assert_allclose(two.x, one.x, rtol=0, atol=1e-12)


@given(n=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_any_table_and_its_dual_end_together_on_affine_operators(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b, x0 = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)
    method = da.StepTable(0.3, np.tril(rng.normal(size=(n, n))))
    problem = da.Problem(da.AdditiveNoise(lambda x: x @ A.T + b, 0.0, vectorized=True), x0)
    one, two = (da.solve(problem, m).x for m in (method, da.dual(method)))
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9 * (1 + np.abs(one).max()))


def test_on_curved_operators_they_do_not() -> None:
    problem = da.Problem(da.AdditiveNoise(lambda x: np.tanh(x) - 0.5, 0.0), [3.0, -2.0])
    one, two = (da.solve(problem, m).x for m in (da.OHM(0.8, 6), da.dual(da.OHM(0.8, 6))))
    assert np.abs(one - two).max() > 0.01


def test_a_dual_keeps_step_and_batch_sizes() -> None:
    assert da.dual(da.OHM(0.7, 9, batch_size=3)).batch_size == 3
    assert da.dual(da.FEG(0.7, batch_size=[1, 2, 3]), 4).batch_size == [1, 1, 2, 2, 3, 3]
    assert da.dual(da.OHM(0.7, 5, batch_size=da.Growing(2.0))).batch_size == [2, 4, 6, 8]
    assert da.dual(da.OHM(0.7, 9)).step_size == 0.7
    tapered = da.StepTable(1.0, np.eye(5), da.Tapered(10.0))
    assert da.solve(da.problems.affine(), tapered).nfev == 2 + 3 + 3 + 5 + 8


@dataclass(frozen=True)
class Normalised(da.SGDA):
    def update(self, k: int, s: Any, G: np.ndarray) -> None:
        s.x -= self.step_size * G / np.linalg.norm(G)


@dataclass(frozen=True)
class Twice(da.SGDA):
    """One batch at two points."""

    def step(self, k: int, s: Any, F: da.Session, coin: Any = None) -> None:
        batch = F.draw(1)
        s.x -= self.step_size * F(s.x - self.step_size * F(s.x, batch), batch)


@dataclass(frozen=True)
class Shrinking(da.SGDA):
    """Linear, but not a combination of x_0 and values with weight 1 on x_0."""

    def update(self, k: int, s: Any, G: np.ndarray) -> None:
        s.x *= 0.5
        s.x -= self.step_size * G


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (da.HalpernPAGE(0.1), "not means of fresh batches"),
        (da.OHM(0.1, estimator=da.PAGE(4, 2)), "not means of fresh batches"),
        (da.AnytimeDualOHM(0.2, 0.01), "made of stages"),
        (Normalised(0.1), "not x0 minus fixed multiples"),
        (Shrinking(0.1), "not x0 minus fixed multiples"),
        (Twice(0.1), "one batch twice"),
    ],
    ids=lambda one: getattr(type(one), "__name__", ""),
)
def test_what_has_no_table_is_refused(method: da.Method, why: str) -> None:
    for read in (step_table, da.dual):
        with pytest.raises(da.errors.ArgumentError, match="must be linear") as caught:
            read(method, 6)
        assert why in caught.value.parts[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: step_table(da.OHM(0.1)), "an anytime method needs a horizon"),
        (lambda: step_table(da.DualOHM(0.1, 5), 6), "horizon must be from 2 to 5"),
        (lambda: step_table(da.OHM(0.1), 1), "horizon must be at least 2"),
        (lambda: step_table("ohm", 5), "method must be a Method"),  # type: ignore[arg-type]
        (lambda: da.StepTable(1.0, [[1.0, 0.5], [0.0, 1.0]]), "zero above its diagonal. Got 0.5 in row 0, column 1"),
        (lambda: da.StepTable(1.0, [[1.0], [0.0]]), r"Got shape \(2, 1\)"),
        (lambda: da.StepTable(1.0, [[1.0], [0.0, 1.0]]), "Got a list"),
        (lambda: da.StepTable(1.0, [[np.nan]]), "Got nan in row 0"),
        (lambda: da.StepTable(0.0, [[1.0]]), "step_size must be positive"),
        (lambda: da.StepTable(1.0, np.eye(3), [1, 2]), "one for each of the 3 rounds"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(da.errors.DualAnchorError, match=message):
        make()


def test_a_table_keeps_to_the_contract_of_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    da.check_method(da.dual(da.FEG(0.3), 12))
    assert repr(da.StepTable(0.5, np.eye(3))) == "StepTable(step_size=0.5, table=<3 x 3>, batch_size=1)"
    assert "step-table" not in {entry.id for entry in da.list_methods()}
