"""Runs on samplers written in JAX: compiled, and the same as in NumPy."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import dualanchor as da

jax = pytest.importorskip("jax")
jnp = jax.numpy

from dualanchor.core import arrays  # noqa: E402
from dualanchor.front.autograd import differentiated  # noqa: E402
from dualanchor.integrations.jax import solve_jit  # noqa: E402
from dualanchor.methods.auto import Auto  # noqa: E402
from dualanchor.methods.cautious import CautiousSteps  # noqa: E402
from dualanchor.oracles.jax_sampler import JaxSampler  # noqa: E402
from dualanchor.run import compiled, driver  # noqa: E402
from dualanchor.run.rows import COMPILED_INTERVAL  # noqa: E402

pytestmark = pytest.mark.slow

A, B = np.array([[1.0, 0.5], [-0.5, 1.0]]), np.array([1.0, 2.0])
ROOT = np.linalg.solve(A, B)
NOISE = np.random.default_rng(0).normal(size=(2, 30_000, 2))
CONSTANTS = da.Constants(L=1.25, M=1.2, mu=1.0, sigma=1.5, D=3.0)
FULL_PASS = ("svrg", "halpern-vr-finite")
NOT_COMPILED = {
    "RAINDoubleLoop": "looks up its epoch by the number of the step",
    "PulledExtragradient": "has two schedules of batch sizes",
}


class Written(da.Oracle):
    """The samples that `written` gives in JAX, in NumPy: noise that is written out, one vector for each batch."""

    def draw(self, streams, size):
        streams.position = (position := streams.position) + 1
        return da.Batch(size, (streams.replications, position))

    def mean(self, x, batch):
        values = x @ A.T - B + NOISE[batch.data] / np.sqrt(batch.size)
        return values.astype(x.dtype)


def written(x, n, noise):
    return jnp.asarray(A, x.dtype) @ x - jnp.asarray(B, x.dtype) + noise.astype(x.dtype) / jnp.sqrt(n)


def gaussian(x, n, key):
    return jnp.asarray(A, x.dtype) @ x - jnp.asarray(B, x.dtype) + jax.random.normal(key, x.shape) / jnp.sqrt(n)


def listed(x, n, key):
    """Needs n as a shape."""
    return jnp.asarray(A, x.dtype) @ x - jnp.asarray(B, x.dtype) + jax.random.normal(key, (n, 2))


def refused():
    """What could not be compiled so far."""
    return {kind for kind, names in compiled._COMPILED_IN.items() if names is None}


@pytest.mark.parametrize("entry", [one for one in da.list_methods() if one.id not in FULL_PASS], ids=lambda one: one.id)
@pytest.mark.parametrize(
    ("x64", "tolerance"),
    [pytest.param(True, 1e-12, id="double"), pytest.param(False, 1e-5, id="single", marks=pytest.mark.no_cover)],
)
def test_every_method_computes_the_same_as_in_numpy(entry, x64, tolerance):
    dtype, before = np.float64 if x64 else np.float32, refused()
    options = {"budget": 2000, "check": False, "reps": 2}
    expected = da.solve(da.Problem(Written(), np.zeros(2, dtype), constants=CONSTANTS), entry.id, **options)
    with jax.enable_x64(x64):
        x0 = jnp.zeros(2, dtype)
        found = da.solve(
            da.Problem(JaxSampler(written, x0, noise=jnp.asarray(NOISE)), x0, constants=CONSTANTS), entry.id, **options
        )
        assert isinstance(found.x, jax.Array)
        assert found.x.dtype == dtype
    np.testing.assert_allclose(found.x, expected.x, rtol=0, atol=tolerance)
    for name in ("nit", "nfev", "draws", "status"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert {kind[0][0].__name__ for kind in refused() - before} <= set(NOT_COMPILED)


DOORS = {
    "budget": {"budget": 9_000, "L": 1.25},
    "no constants": {"budget": 8_000},
    "monotone": {"budget": 5_000, "M": 1.2},
    "certified": {"eps": 0.1},
    "theorem": {"eps": 0.3, "L": 1.25, "sigma": 1.5, "D": 3.0},
}


@pytest.mark.parametrize("options", DOORS.values(), ids=DOORS)
def test_a_front_door_gives_what_it_gives_in_numpy(options):
    """Points, budgets, certificates and findings, given the same noise."""
    expected = da.root(Written(), np.zeros(2), **options)
    with jax.enable_x64(True):
        x0 = jnp.zeros(2)
        found = da.root(JaxSampler(written, x0, noise=jnp.asarray(NOISE)), x0, **options)
    np.testing.assert_allclose(found.x, expected.x, rtol=0, atol=1e-10)
    for name in ("nit", "nfev", "draws", "status", "success", "message"):
        assert getattr(found, name) == getattr(expected, name), name
    assert [one.code for one in found.findings] == [one.code for one in expected.findings]
    assert found.certificate.upper == pytest.approx(expected.certificate.upper, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sampler_takes_starts_in_numpy(dtype):
    oracle = JaxSampler(gaussian, jnp.zeros(2))
    found = da.root(oracle, np.zeros(2, dtype), budget=1_000, L=1.25)
    expected = da.root(oracle, jnp.zeros(2), budget=1_000, L=1.25)
    assert isinstance(found.x, np.ndarray)
    np.testing.assert_array_equal(found.x, expected.x)


@pytest.mark.parametrize("d", [100, 3000])  # 2 rows of 3,000 numbers are not kept on one core
def test_long_vectors_give_what_they_give_in_numpy(d):
    noise = np.random.default_rng(1).normal(size=(2, 300, d))

    class Shifted(Written):
        def mean(self, x, batch):
            return x - 1 + noise[batch.data] / np.sqrt(batch.size)

    def shifted(x, n, noise):
        return x - 1 + noise / jnp.sqrt(n)

    options = {"budget": 300, "check": False, "reps": 2}
    constants = da.Constants(L=1.0)
    expected = da.solve(da.Problem(Shifted(), np.zeros(d), constants=constants), "auto", **options)
    with jax.enable_x64(True):
        x0 = jnp.zeros(d)
        oracle = JaxSampler(shifted, x0, noise=jnp.asarray(noise))
        found = da.solve(da.Problem(oracle, x0, constants=constants), "auto", **options)
    np.testing.assert_allclose(found.x, expected.x, rtol=0, atol=1e-11)


def test_a_sampler_stands_once_in_a_program_and_small_samples_stay_on_one_core():
    """However the method branches. The normal distribution has one logarithm; divided work has partitions."""

    def sample(x, n, key):
        return x - 1 + jax.random.normal(key, x.shape) / jnp.sqrt(n)

    x0 = jnp.zeros(1000)
    F = da.Session(JaxSampler(sample, x0), da.Streams(0, np.arange(1), dimension=1000))
    method = CautiousSteps(0.5)
    s = method.init(x0[None])
    program, arguments = compiled._program(method, s, F, 0, 1, None)
    text = program.run.lower(vars(s), arguments).compile().as_text()
    assert text.count(" conditional(") > 2
    assert text.count(" log-plus-one(") == 1
    assert "outer_dimension_partitions" not in text


@pytest.mark.parametrize("d", [64, 100, 1000])
def test_squares_of_rows_are_summed_by_columns(d):
    """XLA adds those up in vector registers; the numbers of a row it adds up in windows, one after the other."""
    x = np.random.default_rng(d).standard_normal((2, d)).astype(np.float32)
    squares = jax.jit(arrays.row_squares)
    assert "reduce-window" not in squares.lower(x).compile().as_text()
    np.testing.assert_allclose(squares(x), np.square(x.astype(float)).sum(axis=1), rtol=1e-6)


FORTY_RUNS = {"budget": 4_000, "L": 1.25, "reps": 40}


@pytest.fixture(scope="module")
def forty_runs_in_numpy():
    return da.root(lambda x, n, rng: A @ x - B + rng.normal(size=(n, 2)), np.zeros(2), **FORTY_RUNS)


@pytest.mark.parametrize("sample", [gaussian, listed])
def test_a_front_door_takes_a_sampler_with_a_key(sample, forty_runs_in_numpy):
    """Same law as in NumPy: means of 40 runs of each agree within five standard errors.

    A correct library fails for one seed in 900,000 (two coordinates). A bias of 12 standard errors of the difference,
    about a third of the error of a single run, is found with a probability above 0.999.
    """
    found, expected = da.root(sample, jnp.zeros(2), **FORTY_RUNS), forty_runs_in_numpy
    assert isinstance(found.x, jax.Array)
    assert found.success.all()
    np.testing.assert_array_equal(found.nfev, expected.nfev)
    x, y = np.asarray(found.x, float), expected.x
    error = np.sqrt((x.var(axis=0) + y.var(axis=0)) / 40)
    assert (np.abs(x.mean(axis=0) - y.mean(axis=0)) < 5 * error).all()
    assert (x.std(axis=0) / y.std(axis=0) > 0.5).all()
    assert (x.std(axis=0) / y.std(axis=0) < 2).all()
    assert (np.linalg.norm(A @ x.T - B[:, None], axis=0) <= found.certificate.upper).mean() > 0.8


def test_steps_are_compiled_once_for_all_calls():
    """Whatever the seed, the step size that calibration finds, and the budget: nothing is compiled again."""

    def sample(x, n, key, shift):
        return x - shift + jax.random.normal(key, x.shape) / jnp.sqrt(n)

    da.root(sample, jnp.zeros(3), args=(jnp.ones(3),), budget=20_000, L=1.0)
    programs = len(compiled._PROGRAMS)
    sizes = [program.run._cache_size() for program in compiled._PROGRAMS.values()]
    for seed, budget, value in ((1, 20_000, 1.0), (2, 21_000, 2.0)):
        result = da.root(sample, jnp.zeros(3), args=(jnp.full(3, value),), budget=budget, seed=seed)
        np.testing.assert_allclose(result.x, value, atol=0.2)
    assert len(compiled._PROGRAMS) <= programs + 1  # Dual-OHM, where a run comes to that
    assert [program.run._cache_size() for program in compiled._PROGRAMS.values()][: len(sizes)] == sizes


@pytest.fixture
def calls(monkeypatch):
    """The calls of compiled code: the class of the method and the number of steps."""
    found, advance = [], compiled.advance

    def counted(method, s, F, first, count, coins):
        found.append((type(method).__name__, count))
        return advance(method, s, F, first, count, coins)

    monkeypatch.setattr(compiled, "advance", counted)
    return found


def most_calls(result):
    """Those of each stage, and a few behind them."""
    return sum(-(-length // COMPILED_INTERVAL) for length in Auto(1.0, result.nit).lengths) + 8


def test_a_stage_is_one_call_of_compiled_code(monkeypatch, calls):
    """Not one for each of its first and last steps; and the sampler is traced a few times, not for every branch."""
    traced = []

    def sample(x, n, key):
        traced.append(n)
        return x - 1 + jax.random.normal(key, x.shape) / jnp.sqrt(n)

    monkeypatch.setattr(driver, "_CHUNK_SECONDS", np.inf)
    result = da.root(sample, jnp.zeros(3), budget=6_000, L=1.0)
    assert sum(count for _, count in calls) == result.nit
    assert len(calls) < most_calls(result), calls
    assert isinstance(result.x, jax.Array)
    assert len(traced) < 20, traced


def test_a_short_call_that_is_slow_does_not_make_later_ones_short(monkeypatch, calls):
    """On a busy machine, where by the clock every call takes 10 ms, however many steps it has."""
    readings = itertools.count()
    monkeypatch.setattr(driver, "time", SimpleNamespace(perf_counter=lambda: 0.01 * next(readings)))
    result = da.root(gaussian, jnp.zeros(2), budget=20_000, L=1.25)
    assert sum(count for _, count in calls) == result.nit
    assert len(calls) < most_calls(result), calls


def test_dual_ohm_with_a_list_of_batches_and_a_step_for_each_row_is_compiled():
    """As the default runs it where averages are biased: once for all runs, whatever steps and sizes."""
    x0, before = jnp.zeros(2), refused()
    problem = da.Problem(JaxSampler(gaussian, x0), x0)
    programs = []
    for step, N in ((0.5, 40), (0.3, 60)):
        method = da.DualOHM(jnp.full((2, 1), step), N, [1 + k // 10 for k in range(N - 1)])
        found = da.solve(problem, method, reps=2)
        assert found.nfev.tolist() == [sum(method.batch_size)] * 2
        programs.append(set(compiled._PROGRAMS))
    assert refused() == before
    assert programs[0] == programs[1]


def test_results_depend_on_the_seed_alone():
    """Not on where a run is looked at: a callback has every step taken by itself."""
    options = {"budget": 1_000, "L": 1.25, "seed": 3}
    whole = da.root(gaussian, jnp.zeros(2), **options)
    stepwise = da.root(gaussian, jnp.zeros(2), callback=lambda x: None, **options)
    np.testing.assert_array_equal(whole.x, stepwise.x)
    assert np.abs(da.root(gaussian, jnp.zeros(2), **options | {"seed": 4}).x - whole.x).max() > 0


def test_other_doors_and_shapes():
    result = da.fixed_point(
        lambda x, n, key: 1 + 0.5 * (x - 1) + 0.1 * jax.random.normal(key, x.shape) / jnp.sqrt(n),
        jnp.zeros((2, 2)),
        budget=3_000,
    )
    assert result.x.shape == (2, 2)
    np.testing.assert_allclose(result.x, 1.0, atol=0.1)

    def grad_u(u, v, n, key):
        return u + v + jax.random.normal(key, u.shape) / jnp.sqrt(n)

    def grad_v(u, v, n, key):
        return u - v + jax.random.normal(key, u.shape) / jnp.sqrt(n)

    u, v = da.saddle(grad_u, grad_v, (jnp.ones(2), jnp.ones(2)), budget=20_000, L=2.0).x
    assert isinstance(u, jax.Array)
    assert max(np.abs(u).max(), np.abs(v).max()) < 0.15

    def below_one(z, step):
        return jnp.minimum(z, 1.0)

    def on_the_host(z, step):
        return jnp.asarray(np.minimum(np.asarray(z), 1.0))

    for prox in (below_one, on_the_host):  # compiled, and step by step
        result = da.inclusion(gaussian, prox, jnp.zeros(2), budget=2_000, L=1.25)
        np.testing.assert_allclose(result.x, [0.5, 1.0], atol=0.3)


def regularised(u, v, n, key, scale):  # the saddle point is u = v = 1/2
    return scale * (((u["w"] - 1) ** 2).sum() / 2 + u["w"] @ v - v @ v / 2)


def test_one_function_of_both_players_is_differentiated_and_compiled():
    start = {"w": jnp.array([1.0, 2.0, 3.0])}, jnp.array([4.0, 5.0, 6.0])
    oracle, _, x0 = differentiated(regularised, start, (2.0,))
    assert oracle.traceable
    session = da.Session(oracle, da.Streams(0, np.arange(1), dimension=6, dtype=np.float32))
    value = session.fresh(x0[None], 1)
    np.testing.assert_allclose(value, [[8, 12, 16, 6, 6, 6]], rtol=1e-6)  # 2 (u - 1 + v), 2 (v - u)

    def noisy(u, v, n, key):
        return (u - 1) @ (u - 1) / 2 + u @ (v + jax.random.normal(key, u.shape) / jnp.sqrt(n)) - v @ v / 2

    result = da.saddle(noisy, (jnp.zeros(2), jnp.zeros(2)), budget=3_000, L=2.0)
    assert result.success
    assert isinstance(result.x[1], jax.Array)
    np.testing.assert_allclose(np.concatenate(result.x), 0.5, atol=0.15)


def test_a_function_of_both_players_may_draw_from_a_generator():
    def drawing(u, v, n, rng):
        return u @ u / 2 + u @ (v + rng.normal(size=2).astype(np.float32)) - v @ v / 2

    oracle, _, x0 = differentiated(drawing, (jnp.ones(2), jnp.ones(2)), ())
    session = da.Session(oracle, da.Streams(0, np.arange(1), dimension=4, dtype=np.float32))
    value = np.asarray(session.fresh(x0[None], 1))
    assert not oracle.traceable
    np.testing.assert_allclose(value[0, 2:], 0.0, atol=1e-6)  # v - u
    assert np.all(value[0, :2] != 2.0)  # u + v and noise


@pytest.mark.parametrize(
    ("phi", "message"),
    [
        (lambda u, v, n, key: u * v, r"phi must return one number. Got shape \(2,\). Return the mean over the samples"),
        (lambda u, v, n, key: 1.0, "phi must return one number. Got float. Return a number made from u and v"),
        (lambda u, v, n, key: u @ v if u[0] > 0 else v @ v, "phi must be traceable by JAX.* line"),
    ],
)
def test_a_function_of_both_players_that_cannot_be_differentiated_is_named(phi, message):
    with pytest.raises(da.errors.OracleError, match=f"saddle: {message}"):
        da.saddle(phi, (jnp.zeros(2), jnp.zeros(2)), budget=100)


def test_divergence_is_a_status_and_nan_an_error():
    diverging = da.solve(
        da.Problem(JaxSampler(lambda x, n, key: -x, jnp.ones(2)), jnp.ones(2)), da.SGDA(1.0), stop=da.Steps(3000)
    )
    exact = da.solve(
        da.Problem(da.Sampler(lambda x, n, rng: -x), np.ones(2, np.float32)), da.SGDA(1.0), stop=da.Steps(3000)
    )
    assert (diverging.status, diverging.nit) == (exact.status, exact.nit)
    assert diverging.status is da.Status.DIVERGED

    def undefined(x, n, key):
        return jnp.sqrt(x) + 0.1

    with pytest.raises(da.errors.OracleError, match="NaN for a point of norm") as raised:
        da.solve(da.Problem(JaxSampler(undefined, jnp.ones(2)), jnp.ones(2)), da.SGDA(0.1), stop=da.Steps(500))
    assert 5 < raised.value.iteration < 20
    assert raised.value.result.nit == raised.value.iteration


def test_a_generator_is_still_taken():
    def sample(x, n, rng):
        return x - 1 + jnp.asarray(rng.normal(size=2) / np.sqrt(n), x.dtype)

    result = da.root(sample, jnp.zeros(2), budget=300, L=1.0)
    np.testing.assert_allclose(result.x, 1.0, atol=0.5)


def branches(x, n, key):
    if x[0] > 0:
        return x + jax.random.normal(key, x.shape)
    return x


def on_the_host(x, n, key):
    noise = jax.random.normal(key, x.shape)
    return x + np.sin(noise)


def impure(x, n, key):
    return x + jnp.asarray(np.random.default_rng().normal(size=2), x.dtype)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (branches, r"root: sample must be traceable .* in test_jax_runs.py, line \d+: if x\[0\] > 0:"),
        (on_the_host, r"root: sample must be traceable .* in test_jax_runs.py, line \d+: return x \+ np.sin\(noise\)"),
        (impure, "root: sample must be a pure function: all randomness must come from the key"),
        (
            lambda x, n, key: x[:1],
            r"root: sample must return the mean of n samples.* Got shape \(1,\) for x of shape \(2,\)",
        ),
        (lambda x, n, key: None, r"root: sample must return the mean of n samples.* Got None for x of shape \(2,\)"),
        (lambda x, n, key: np.ones(2), "root: sample must return an array of the library of x. Got a NumPy array, "),
        (lambda x, n, key: x + 1j, "root: sample must return real numbers. Got dtype complex"),
        (lambda x, n, key: jax.random.normal(n, (2,)), "root: sample must not raise"),
    ],
)
def test_a_sampler_that_cannot_be_compiled_is_named(sample, message):
    with pytest.raises(da.errors.OracleError, match=message):
        da.root(sample, jnp.zeros(2), budget=1_000)


def test_bad_starts_and_seeds():
    for dtype in (jnp.float16, jnp.bfloat16):
        with pytest.raises(TypeError, match=r"root: a start in JAX must be in single or double .* Got dtype b?float16"):
            da.root(gaussian, jnp.zeros(2, dtype), budget=1_000)
        with pytest.raises(
            TypeError, match=r"solve_jit: a start in JAX must be in single or double .* Got dtype b?float16"
        ):
            solve_jit(gaussian, jnp.zeros(2, dtype), step_size=0.1, horizon=10)
    with jax.enable_x64(True):
        mixed = jnp.zeros(2), jnp.zeros(2, jnp.float32)
        with pytest.raises(
            TypeError, match=r"saddle: the start must be of one dtype. Got float64 and float32. Convert"
        ):
            da.saddle(lambda u, v, n, key: u + v, lambda u, v, n, key: u - v, mixed, budget=1_000)
    with pytest.raises(TypeError, match="root: seed must be an integer"):
        da.root(gaussian, jnp.zeros(2), budget=1_000, seed=jax.random.key(0))


@pytest.mark.parametrize("start", [np.zeros(2), [0.0, 0.0], "loaded"], ids=["NumPy", "list", "loaded"])
def test_a_key_needs_a_start_in_jax(start, tmp_path):
    def sample(x, n, key):
        return x + jax.random.normal(key, x.shape) / jnp.sqrt(n)

    if isinstance(start, str):
        da.root(sample, jnp.zeros(2), budget=200).save(tmp_path / "run.npz")
        start = da.Result.load(tmp_path / "run.npz")
    message = r"root: sample gets a JAX key only .* Got TypeError: .*PRNG key.* Start from a JAX array"
    with pytest.raises(da.errors.OracleError, match=message):
        da.root(sample, start, budget=1_000)
    with pytest.raises(da.errors.OracleError, match="Start from a JAX array"):
        da.root(lambda x, n, key: x + jax.jit(jax.random.normal)(key), start, budget=1_000)


STEPS = pytest.mark.parametrize("keywords", [{}, {"L": 1.0}], ids=["no L", "L"])


@pytest.mark.parametrize("bounds", [(0, 0.5), [(0, 0.5), (None, 0.5)]])
@STEPS
def test_bounds_are_compiled(bounds, keywords):
    def sample(x, n, key):
        return x - 1 + 0.1 * jax.random.normal(key, x.shape) / jnp.sqrt(n)

    result = da.root(sample, jnp.zeros(2), bounds=bounds, budget=1_000, **keywords)
    np.testing.assert_allclose(result.x, 0.5, atol=1e-6)


@STEPS
def test_bounds_of_one_player_are_compiled(keywords):
    u, v = da.saddle(
        lambda u, v, n, key: u - 2 + v,
        lambda u, v, n, key: u - v,
        (jnp.zeros(2), jnp.zeros(2)),
        bounds=((0, 0.5), None),
        budget=1_000,
        **keywords,
    ).x
    np.testing.assert_allclose(u, 0.5, atol=1e-6)
    np.testing.assert_allclose(v, 0.5, atol=0.05)


def test_each_gives_every_sample_a_key_of_its_own():
    """The variance of a mean of 16 is a sixteenth: within a factor of 1.5 for 400 of them, 5 standard errors."""
    mean = da.each(lambda x, key: x + jax.random.normal(key, x.shape))
    oracle = JaxSampler(mean, jnp.zeros(1))
    assert oracle.function.any_size
    session = da.Session(oracle, da.Streams(0, np.arange(400), dimension=1))
    values = np.asarray(session(jnp.zeros((400, 1)), session.draw(16)))
    assert 1 / 1.5 < 16 * values.var() < 1.5
    result = da.root(da.each(lambda x, key: x - 1 + jax.random.normal(key, x.shape)), jnp.zeros(2), budget=2_000)
    np.testing.assert_allclose(result.x, 1.0, atol=0.3)


def test_a_tree_has_the_samples_of_the_vector_of_its_numbers():
    """Batches grow, and n is a traced number in both; batches by the binary digits of n would have other keys."""
    options = DOORS["theorem"]
    flat = da.root(gaussian, jnp.zeros(2), **options)
    tree = da.root(lambda x, n, key: {"a": gaussian(x["a"], n, key)}, {"a": jnp.zeros(2)}, **options)
    np.testing.assert_array_equal(tree.x["a"], flat.x)


def test_trees_reach_the_sampler_as_they_are():
    """Also with gradients, whose dicts `jax.grad` sorts, from a start whose keys are not sorted."""

    def loss(p, shift):
        return jnp.sum((p["v"] - 2 - shift) ** 2) / 2 + jnp.sum((p["u"][0] - 1) ** 2) / 2

    def sample(p, n, key):
        return jax.grad(loss)(p, jax.random.normal(key, (3,)) / jnp.sqrt(n))

    result = da.root(sample, {"v": jnp.zeros(3), "u": (jnp.zeros((1, 3)),)}, budget=5_000, L=1.0)
    assert isinstance(result.x["v"], jax.Array)
    np.testing.assert_allclose(result.x["v"], 2.0, atol=0.2)
    np.testing.assert_allclose(result.x["u"][0], np.ones((1, 3)), atol=0.05)

    def grad_u(u, v, n, key):
        return {"a": u["a"] + v + jax.random.normal(key, (2,)) / jnp.sqrt(n)}

    def grad_v(u, v, n, key):
        return u["a"] - v + jax.random.normal(key, (2,)) / jnp.sqrt(n)

    u, v = da.saddle(grad_u, grad_v, ({"a": jnp.ones(2)}, jnp.ones(2)), budget=5_000, L=2.0).x
    assert max(np.abs(u["a"]).max(), np.abs(v).max()) < 0.3


def test_samplers_with_a_key_are_certified_and_calibrated():
    def sample(x, n, key):
        return x - 1 + jax.random.normal(key, x.shape) / jnp.sqrt(n)

    made = da.certify(sample, jnp.full(3, 2.0), samples=400)
    assert made.lower < 3**0.5 < made.upper
    result = da.root(sample, jnp.zeros((2, 2)), budget=3_000, L=1.0)
    assert da.certify(sample, result, samples=400).upper < 0.5
    assert da.calibrate(sample, jnp.zeros(3)).sigma == pytest.approx(3**0.5, rel=0.3)

    def in_numpy(x, n, rng):
        return x - 1 + jnp.asarray(rng.normal(size=3), x.dtype) / n**0.5

    assert da.certify(in_numpy, jnp.ones(3), samples=400).upper < 0.5


class Shop:
    """A sampler that is a bound method, and reads from outside what may change."""

    def __init__(self, demand, shift):
        self.demand, self.shift = demand, shift

    def sample(self, x, n, key):
        return x - self.demand + self.shift + 0.1 * jax.random.normal(key, x.shape) / jnp.sqrt(n)


def test_what_a_sampler_reads_from_outside_may_change_between_calls():
    shop = Shop(2.0, jnp.zeros(2))
    for demand, shift in ((2.0, 0.0), (7.0, 0.0), (7.0, 1.0)):
        shop.demand, shop.shift = demand, jnp.full(2, shift)
        result = da.root(shop.sample, jnp.zeros(2), budget=1000)
        assert result.success
        np.testing.assert_allclose(result.x, demand - shift, atol=0.05)


def test_what_is_read_within_a_compiled_part_of_a_sampler_may_change_between_calls():
    shift = np.zeros(2)

    def sample(x, n, key):
        return jax.jit(lambda x: x - shift)(x) + 0.1 * jax.random.normal(key, x.shape) / jnp.sqrt(n)

    for value in (0.0, 3.0):
        shift = np.full(2, value)
        np.testing.assert_allclose(da.root(sample, jnp.zeros(2), budget=1000).x, value, atol=0.05)


def test_numbers_of_numpy_among_the_arguments_need_no_doubles():
    def sample(x, n, key, shift, scale):
        return scale * (x - shift) + 0.1 * jax.random.normal(key, x.shape) / jnp.sqrt(n)

    result = da.root(sample, jnp.zeros(2), args=(np.array([1.0, 2.0]), np.float64(0.5)), budget=1000)
    np.testing.assert_allclose(result.x, [1.0, 2.0], atol=0.1)


@dataclass
class Scale:
    """Has no hash; as a sampler, and among its arguments."""

    factor: float

    def __call__(self, x, n, key, *others):
        factor = self.factor * (others[0].factor if others else 1.0)
        return factor * (x - 1) + 0.1 * jax.random.normal(key, x.shape) / jnp.sqrt(n)


@pytest.mark.parametrize("args", [(), (Scale(2.0), 3.0)])
def test_samplers_and_arguments_need_no_hash(args):
    result = da.root(Scale(0.5), jnp.zeros(2), args=args, budget=1000)
    assert result.success
    np.testing.assert_allclose(result.x, 1.0, atol=0.1)


def shifted(x, n, key, shift):
    return gaussian(x, n, key) + shift


@pytest.mark.parametrize(
    ("within", "value"),
    [
        (lambda x: da.root(gaussian, x, budget=1000).x, np.zeros(2)),
        (lambda x: da.root(lambda p, n, key: {"a": gaussian(p["a"], n, key)}, {"a": x}, budget=1000).x, np.zeros(2)),
        (lambda shift: da.root(shifted, jnp.zeros(2), args=(shift,), budget=1000).x, 1.0),
        (lambda x: da.saddle(lambda u, v, n, key: u @ u - v @ v, (x, jnp.zeros(2)), budget=1000).x[0], np.zeros(2)),
    ],
    ids=["start", "tree", "args", "saddle"],
)
def test_a_front_door_within_a_transformation_is_refused(within, value):
    with pytest.raises(
        TypeError, match=r"cannot be called within jax\.jit, vmap or grad\. Got a traced array\. Call it"
    ):
        jax.jit(within)(value)


def test_a_key_of_its_own_hides_the_noise():
    """All samples have the same noise then, which the bound cannot see; a function that draws nothing has none."""

    def fixed(x, n, key):
        return x + jax.random.normal(jax.random.key(0), x.shape)

    unseen = da.certify(fixed, jnp.zeros(2), samples=100)
    assert "noise-not-seen" in [finding.code for finding in unseen.findings]
    assert unseen.upper == np.inf
    plain = da.certify(lambda x, n, key: x + 0 * jnp.sqrt(n), jnp.ones(2), samples=100)
    assert plain.upper == pytest.approx(2**0.5)
