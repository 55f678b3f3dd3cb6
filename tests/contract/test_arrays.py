"""Methods run unchanged on NumPy, PyTorch and JAX arrays: same numbers, same type, dtype and device, nothing copied.

One operator, written with what the three libraries share, serves all of them. JAX runs in its 64-bit mode, in single
precision too: there a double that leaks into a formula would show in the dtype. Points have D numbers wherever it does
not matter how many: JAX compiles every operation for every shape.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.contract.cases import Case, coin

import dualanchor as da
from dualanchor.core import arrays
from dualanchor.core.registry import Registered
from dualanchor.core.staged import Staged
from dualanchor.core.streams import Purpose

pytestmark = pytest.mark.slow  # importing the libraries takes seconds, and JAX compiles every operation for every shape

ROWS, D, N = 3, 6, 9
STEPS = 40
RNG = np.random.default_rng(5)
MATRIX = np.eye(D) + np.triu(RNG.normal(size=(D, D)), 1) * 0.3
MATRIX = MATRIX - np.triu(MATRIX, 1).T  # strongly monotone with a turn
CENTRES = RNG.normal(size=(N, D))
CENTRES -= CENTRES.mean(axis=0)
START = RNG.normal(size=D)
CONSTANTS = da.Constants(L=4.0, mu=0.5, M=2.0, sigma=3.0, D=5.0)


class Library(NamedTuple):
    """A library, by what a user of it would write."""

    name: str
    xp: Any
    context: Any

    def array(self, values: Any, dtype: str = "float64") -> Any:
        return self.xp.asarray(values, dtype=getattr(self.xp, dtype))

    @property
    def type(self) -> type:
        return {"numpy": np.ndarray}.get(self.name) or getattr(self.xp, "Tensor", None) or sys.modules["jax"].Array


def _library(name: str) -> Library:
    if name == "numpy":
        return Library(name, np, nullcontext)
    if name == "torch":
        return Library(name, pytest.importorskip("torch"), nullcontext)
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    return Library(name, jnp, lambda: jax.enable_x64(True))


@pytest.fixture(params=["numpy", "torch", "jax"])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    found = _library(request.param)
    with found.context():
        yield found


@pytest.fixture(params=["torch", "jax"])
def other(request: pytest.FixtureRequest) -> Iterator[Library]:
    found = _library(request.param)
    with found.context():
        yield found


class Shifted(da.Oracle):
    """The finite sum of A x + clip(x) - c_i, for the arrays of one library; indices are drawn on the host."""

    components = N

    def __init__(self, library: Library, dtype: str = "float64") -> None:
        self._A = library.array(MATRIX.T, dtype)
        self._centres = library.array(CENTRES, dtype)

    def draw(self, streams: da.Streams, size: int) -> da.Batch:
        return da.Batch(size, streams.integers(N, size).copy())  # PyTorch warns of indices that cannot be written to

    def full_batch(self) -> da.Batch:
        return da.Batch(N, None)

    def mean(self, x: Any, batch: da.Batch) -> Any:
        value = self.operator(x)
        return value if batch.data is None else value - self._centres[batch.data].mean(axis=1)

    def operator(self, x: Any) -> Any:
        return x @ self._A + x.clip(-0.2, 0.2)


def problem(library: Library, dtype: str = "float64") -> da.Problem:
    return da.Problem(Shifted(library, dtype), library.array(START, dtype), constants=CONSTANTS)


def method_for(entry: Registered) -> da.Method:
    """The method with a step that no row diverges from."""
    made = Case(entry, problem(_library("numpy"))).make()
    return made.with_changes(step_size=min(0.1, made.step_size))


def run(library: Library, method: da.Method, dtype: str = "float64", **options: Any) -> da.Result:
    stop = None if type(method).id == "auto" else da.Steps(STEPS)  # which decides something towards its end only
    return da.solve(problem(library, dtype), method, stop=stop, seed=7, reps=ROWS, check=False, **options)


TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def in_turn(number: int) -> list[tuple[str, str]]:
    """Both libraries, one in double and one in single precision, taking turns."""
    dtypes = list(TOLERANCE) if number % 2 == 0 else list(TOLERANCE)[::-1]
    return list(zip(("torch", "jax"), dtypes, strict=True))


def assert_on(library: Library, x: Any, dtype: str) -> None:
    assert isinstance(x, library.type)
    assert x.dtype == getattr(library.xp, dtype)
    if library.name != "numpy":
        assert x.device == library.array(0.0).device


# -- the same everywhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "other", "dtype"),
    [
        pytest.param(entry, name, dtype, id=f"{entry.id}-{name}-{dtype}")
        for number, entry in enumerate(da.list_methods())
        for name, dtype in in_turn(number)
    ],
    indirect=["other"],
)
def test_a_run_gives_the_numbers_of_numpy_in_arrays_of_its_start(entry: Registered, dtype: str, other: Library) -> None:
    tolerance = TOLERANCE[dtype]
    method = method_for(entry)
    expected = run(_library("numpy"), method, dtype)
    with _no_copies(ROWS) if other.name == "torch" else nullcontext():  # nothing of the size of x leaves its device
        found = run(other, method, dtype)
    scale = max(1.0, np.abs(expected.x).max())
    np.testing.assert_allclose(arrays.to_host(found.x), expected.x, rtol=0, atol=tolerance * scale)
    assert found.x.shape == (ROWS, D)
    assert_on(other, found.x, dtype)
    assert found.state.keys() == expected.state.keys()
    for value in found.state.values():
        assert_on(other, value, dtype)
    np.testing.assert_array_equal(found.nfev, expected.nfev)
    np.testing.assert_array_equal(found.draws, expected.draws)
    np.testing.assert_array_equal(found.status, expected.status)
    assert type(found.residual) is np.ndarray
    np.testing.assert_allclose(found.residual, expected.residual, rtol=0, atol=10 * tolerance * scale)
    np.testing.assert_array_equal(found.history.k, expected.history.k)
    np.testing.assert_allclose(found.history.residual, expected.history.residual, rtol=0, atol=10 * tolerance * scale)


@pytest.mark.parametrize(
    ("vectorized", "noise"),
    [(True, None), (False, lambda n, rng: rng.normal(size=D) / np.sqrt(n))],
    ids=["rows", "one"],
)
def test_additive_noise_is_that_of_numpy(other: Library, vectorized: bool, noise: Any) -> None:
    def made(of: Library) -> Any:
        A = of.array(MATRIX)
        F = (lambda x: x @ A.T) if vectorized else (lambda x: A @ x)
        oracle = da.AdditiveNoise(F, 0.5, vectorized=vectorized, noise=noise)
        made = da.Problem(oracle, of.array(START), constants=CONSTANTS)
        return da.solve(made, "s-dual-ohm", budget=40, reps=2)

    expected, found = made(_library("numpy")), made(other)
    assert_on(other, found.x, "float64")
    np.testing.assert_allclose(arrays.to_host(found.x), expected.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.residual, expected.residual, rtol=0, atol=1e-11)


def test_a_finite_sum_of_functions_is_that_of_numpy(other: Library) -> None:
    def made(of: Library) -> da.Result:
        centres = of.array(CENTRES)
        oracle = da.FiniteSum(lambda x, i: x - centres[i], N)
        made = da.Problem(oracle, of.array(START), constants=da.Constants(L=1.0))
        return da.solve(made, da.HalpernVRFinite(0.25, N, small_batch=2), stop=da.Steps(10))

    expected, found = made(_library("numpy")), made(other)
    assert_on(other, found.x, "float64")
    np.testing.assert_allclose(arrays.to_host(found.x), expected.x, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.residual, expected.residual, rtol=0, atol=1e-13)


def test_another_start_brings_its_library_along(other: Library) -> None:
    oracle = da.AdditiveNoise(lambda x: 2 * x, 0.1)
    flat = da.Problem(oracle, np.ones(D), constants=da.Constants(L=2.0))
    assert_on(other, da.solve(flat, budget=10, x0=other.array(START, "float32")).x, "float32")
    first = da.solve(flat, budget=10, x0=other.array(np.tile(START, (2, 1))), reps=2)
    assert_on(other, first.x, "float64")
    assert_on(other, da.solve(flat, budget=10, x0=first, reps=2).x, "float64")


def test_whole_numbers_become_floats(other: Library) -> None:
    """Of the library's default dtype, so that they fit the user's other arrays."""
    flat = da.Problem(
        da.AdditiveNoise(lambda x: 2 * x, 0.1), other.xp.asarray(list(range(D))), constants=da.Constants(L=2.0)
    )
    assert_on(other, da.solve(flat, budget=10).x, "float32" if other.name == "torch" else "float64")


def test_the_start_stays_the_callers(library: Library) -> None:
    start = library.array(START)
    da.solve(da.Problem(Shifted(library), start, constants=CONSTANTS), "s-dual-ohm", budget=20)
    np.testing.assert_array_equal(arrays.to_host(start), START)


def test_a_row_that_diverges_leaves_the_others_alone(library: Library) -> None:
    oracle = da.AdditiveNoise(lambda x: x**3, 0.1, vectorized=True)
    starts = library.array(np.repeat([[0.5], [100.0], [0.7]], D, axis=1))
    cubic = da.Problem(oracle, library.array(np.full(D, 0.5)))
    result = da.solve(cubic, da.SGDA(0.1), x0=starts, reps=3, stop=da.Steps(50))
    assert [one.name for one in result.status] == ["STEPS", "DIVERGED", "STEPS"]
    assert np.isinf(result.residual[1])
    assert_on(library, result.x, "float64")
    alone = da.solve(cubic, da.SGDA(0.1), x0=starts[:1], reps=[0], stop=da.Steps(50))
    np.testing.assert_allclose(arrays.to_host(result.x[0]), arrays.to_host(alone.x[0]), rtol=1e-13)


# -- nothing is copied -------------------------------------------------------------------------------------------


def _no_copies(most: int) -> Any:
    """A guard under which no tensor of more numbers than this may be read from the host."""
    torch = pytest.importorskip("torch")
    leaving = {"numpy", "__array__", "tolist", "item", "cpu", "__dlpack__", "__float__", "__bool__", "__int__"}

    class Guard(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            if name in leaving and args[0].numel() > most:
                raise AssertionError(f"{name} of {args[0].numel()} numbers")
            return function(*args, **(kwargs or {}))

    return Guard()


@pytest.mark.parametrize("leak", [np.asarray, arrays.to_host, lambda x: x.tolist(), np.from_dlpack, lambda x: x.cpu()])
def test_the_guard_sees_copies(leak: Any) -> None:
    torch = pytest.importorskip("torch")
    with _no_copies(ROWS):
        leak(torch.ones(ROWS))
        with pytest.raises(AssertionError, match="of 4 numbers"):
            leak(torch.ones(ROWS + 1))


@pytest.mark.parametrize(
    "entry",
    [entry for entry in da.list_methods() if not issubclass(entry.cls, Staged)],  # stages are made of these
    ids=lambda entry: entry.id,
)
def test_steps_can_be_traced_so_they_read_no_numbers(entry: Registered) -> None:
    """Under JAX's tracing whatever brings numbers to the host raises; in single precision a double would show."""
    jax = pytest.importorskip("jax")
    library, method = _library("jax"), method_for(entry)

    def steps(x0: Any) -> Any:
        streams = da.Streams(7, np.arange(ROWS), Purpose.NOISE, D)
        session, coins = da.Session(Shifted(library, "float32"), streams), streams.of(Purpose.COIN)
        session.checking = False
        s = method.init(x0)
        for k in range(12):
            method.step(k, s, session, coin(method, coins, k))
        return vars(s)

    with library.context():
        shapes = jax.eval_shape(steps, library.array(np.tile(START, (ROWS, 1)), "float32"))
        with pytest.raises(jax.errors.TracerArrayConversionError):
            jax.eval_shape(arrays.to_host, library.array(START))
    assert shapes["x"].shape == (ROWS, D)
    assert {str(value.dtype) for value in shapes.values()} == {"float32"}


def test_no_graph_is_drawn_through_the_steps() -> None:
    torch = pytest.importorskip("torch")
    A = torch.nn.Parameter(torch.as_tensor(MATRIX))
    for vectorized in (True, False):
        oracle = da.AdditiveNoise((lambda x: x @ A.T) if vectorized else (lambda x: A @ x), 0.1, vectorized=vectorized)
        start = torch.nn.Parameter(torch.as_tensor(START))
        result = da.solve(da.Problem(oracle, start, constants=CONSTANTS), "s-dual-ohm", budget=20)
        assert not result.x.requires_grad
        assert start.requires_grad


# -- files, texts, front doors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "name"), [("torch", "s-dual-ohm"), ("torch", "auto"), ("jax", "s-dual-ohm")], indirect=["library"]
)
def test_a_run_goes_on_from_its_checkpoint(library: Library, name: str, tmp_path: Any) -> None:
    method = method_for(next(entry for entry in da.list_methods() if entry.id == name))
    options: dict[str, Any] = {"seed": 3, "reps": 2, "check": False}
    whole = da.solve(problem(library), method, stop=da.Steps(STEPS), **options)
    file = tmp_path / "run.npz"
    calls = []

    def interrupt(intermediate_result: da.Result) -> None:
        calls.append(intermediate_result)
        assert_on(library, intermediate_result.x, "float64")
        if len(calls) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        da.solve(
            problem(library),
            method,
            stop=da.Steps(STEPS),
            callback=interrupt,
            checkpoint=da.Checkpoint(file, seconds=0),
            **options,
        )
    resumed = da.solve(problem(library), method, stop=da.Steps(STEPS), checkpoint=file, **options)
    assert "resumed" in [finding.code for finding in resumed.findings]
    for field, value in whole.state.items():
        assert_on(library, resumed.state[field], "float64")
        np.testing.assert_array_equal(arrays.to_host(resumed.state[field]), arrays.to_host(value), err_msg=field)


def test_a_result_can_be_shown_and_saved(other: Library, tmp_path: Any) -> None:
    single = da.solve(problem(other), "s-dual-ohm", budget=40)
    several = run(other, da.SGDA(0.1))
    assert "0.1" in repr(da.solve(problem(other), da.SGDA(0.1), stop=da.Steps(0), x0=other.array([0.125] * D)))
    assert f"array of shape ({ROWS}, {D})" in repr(several)
    assert len(several.to_frame()) == len(several.history)
    for number, result in enumerate((single, several)):
        loaded = da.Result.load(result.save(tmp_path / f"{number}.npz"))
        assert type(loaded.x) is np.ndarray
        np.testing.assert_array_equal(loaded.x, arrays.to_host(result.x))
        np.testing.assert_array_equal(loaded.state["x"], arrays.to_host(result.state["x"]))


def test_a_result_can_be_plotted(other: Library) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    axes = da.solve(problem(other), "s-dual-ohm", budget=40).plot()
    assert axes.lines
    pyplot.close(axes.figure)


class Points:
    """A user's functions, which check what they are handed."""

    def __init__(self, library: Library, dtype: str, shape: tuple[int, ...]) -> None:
        self.library, self.dtype, self.shape = library, dtype, shape

    def noise(self, n: int, rng: np.random.Generator, shape: tuple[int, ...] | None = None) -> Any:
        assert isinstance(rng, np.random.Generator)
        drawn = rng.normal(size=self.shape if shape is None else shape) / np.sqrt(n)
        return self.library.array(0.1 * drawn, self.dtype)

    def __call__(self, x: Any, n: int, rng: Any) -> Any:
        assert_on(self.library, x, self.dtype)
        assert x.shape == self.shape
        return x - 1 + self.noise(n, rng)


REQUESTS: dict[str, dict[str, Any]] = {
    "budget": {"budget": 700, "L": 1.0},
    "theorem": {"eps": 0.2, "L": 1.0, "sigma": 0.25, "D": 3.0},
    "stages": {"eps": 0.3, "L": 1.0, "reps": 2},
    "high-probability": {"eps": 0.4, "L": 1.0, "sigma": 0.25, "D": 3.0, "confidence": 0.99},
}


@pytest.mark.parametrize(
    ("request_", "other", "dtype"),
    [
        pytest.param(request, name, dtype, id=f"{request}-{name}-{dtype}")
        for number, request in enumerate(REQUESTS)
        for name, dtype in in_turn(number)
    ],
    indirect=["other"],
)
def test_root_answers_in_the_arrays_of_its_start(other: Library, dtype: str, request_: str) -> None:
    shape = (2, 3)

    def answer(of: Library) -> da.Result:
        return da.root(Points(of, dtype, shape), of.array(np.zeros(shape), dtype), seed=2, **REQUESTS[request_])

    expected, found = answer(_library("numpy")), answer(other)
    assert found.success is expected.success or np.all(found.success == expected.success)
    assert_on(other, found.x, dtype)
    assert tuple(found.x.shape) == expected.x.shape
    tolerance = 1e-11 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(arrays.to_host(found.x), expected.x, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.certificate.upper, expected.certificate.upper, rtol=10 * tolerance)
    np.testing.assert_array_equal(found.nfev, expected.nfev)


def test_the_other_doors_answer_in_them_too(other: Library) -> None:
    points = Points(other, "float64", (D,))
    zeros, two = other.array(np.zeros(D)), other.array([2.0, 0.5] * (D // 2))
    fixed = da.fixed_point(lambda x, n, rng: 0.5 * (x + 1) + points.noise(n, rng), zeros, budget=250)
    assert_on(other, fixed.x, "float64")
    assert float(abs(fixed.x - 1).max()) < 0.05

    saddle = da.saddle(
        lambda u, v, n, rng: u + v.sum() + points.noise(n, rng, (D - 1,)),
        lambda u, v, n, rng: u.sum() - v + points.noise(n, rng, (1,)),
        (zeros[1:] + 1, zeros[:1] + 1),
        budget=250,
        L=float(D),
    )
    for block, shape in zip(saddle.x, ((D - 1,), (1,)), strict=True):
        assert_on(other, block, "float64")
        assert tuple(block.shape) == shape
        assert float(abs(block).max()) < 0.2

    inside = da.inclusion(
        lambda x, n, rng: x - two + points.noise(n, rng), lambda z, step: z.clip(0.0, 1.0), zeros, budget=250, L=1.0
    )
    assert_on(other, inside.x, "float64")
    assert float(abs(inside.x - other.array([1.0, 0.5] * (D // 2))).max()) < 0.05


def test_certificates_and_residuals_are_those_of_numpy(other: Library) -> None:
    def made(of: Library) -> tuple[Any, ...]:
        oracle, x = Shifted(of), of.array(np.stack([START, 2 * START]))
        certificate = da.certify(oracle, x, samples=512)
        seen = da.calibrate(oracle, of.array(START), samples=600)
        return certificate.upper, certificate.sigma, certificate.squared, seen.sigma, seen.residual

    for one, two in zip(made(_library("numpy")), made(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10)


def test_only_the_sums_of_a_certificate_go_to_the_host() -> None:
    torch = pytest.importorskip("torch")
    wide, groups = 5000, 128
    oracle = da.AdditiveNoise(lambda x: 2 * x, 0.1, vectorized=True)
    with _no_copies(groups**2):
        certificate = da.certify(oracle, torch.ones(wide, dtype=torch.float64), samples=256)
    assert abs(certificate.residual - 2 * np.sqrt(wide)) < 0.1


@pytest.mark.parametrize("d", [D, 200])  # products are summed over groups, or over coordinates
def test_what_jax_cannot_square_in_single_precision_has_no_finite_bound(d: int) -> None:
    jax = pytest.importorskip("jax")
    oracle = da.AdditiveNoise(lambda x: x, noise=lambda n, rng: 5e17 * rng.choice([-1.0, 1.0], size=d))
    with jax.enable_x64(False):
        far = da.certify(oracle, jax.numpy.full(d, 3e19), samples=256)
        near = da.certify(oracle, jax.numpy.full(d, 1e15), samples=256)
    assert far.upper == far.residual == np.inf
    assert "samples-too-large" in [finding.code for finding in far.findings]
    assert 0 <= near.residual < near.upper < np.inf


# -- what is turned down -----------------------------------------------------------------------------------------


def test_configurations_of_one_array_need_numpy(other: Library) -> None:
    with pytest.raises(da.errors.ArgumentTypeError, match="with NumPy only"):
        da.solve(problem(other), [da.SGDA(0.1), da.SGDA(0.2)], budget=10)


def test_methods_are_tuned_with_numpy(other: Library) -> None:
    with pytest.raises(da.errors.CapabilityError, match=r"compare: .* need a NumPy start.* sgda\. "):
        da.compare(problem(other), ["auto", "sgda"], budget=100, seeds=2, jobs=1)
    assert da.compare(problem(other), ["auto"], budget=100, seeds=2, jobs=1).best == "auto"


def test_an_oracle_must_answer_in_the_library_of_x(other: Library) -> None:
    vectorized = da.Sampler(lambda x, n, rngs: np.zeros(x.shape), vectorized=True)
    for oracle in (vectorized, da.Sampler(lambda x, n, rng: np.zeros(D)), da.AdditiveNoise(lambda x: np.zeros(D))):
        with pytest.raises(da.errors.OracleError, match="of the library of x"):
            da.solve(da.Problem(oracle, other.array(START)), da.SGDA(0.1), stop=da.Steps(2))
    with pytest.raises(da.errors.OracleError, match="root: sample must return an array of the library of x"):
        da.root(lambda x, n, rng: np.zeros(D), other.array(START), budget=100, L=1.0)


def test_an_answer_of_a_third_library_is_turned_down(other: Library) -> None:
    third = _library("jax" if other.name == "torch" else "torch")
    vectorized = da.Sampler(lambda x, n, rngs: third.array(np.zeros(tuple(x.shape)), "float32"), vectorized=True)
    for oracle in (vectorized, da.Sampler(lambda x, n, rng: third.array(np.zeros(D), "float32"))):
        with pytest.raises(da.errors.OracleError, match="of the library of x"):
            da.solve(da.Problem(oracle, other.array(START)), da.SGDA(0.1), stop=da.Steps(2))


def test_an_answer_of_another_library_is_turned_down_at_any_time(other: Library) -> None:
    oracle = da.Sampler(lambda x, n, rngs: np.zeros(tuple(x.shape)), vectorized=True)
    F = da.Session(oracle, da.Streams(0, np.arange(1), dimension=D))
    F.checking = False  # as after the first steps of a run
    with pytest.raises(da.errors.OracleError, match="of the library of x"):
        F(other.array(START[None]), F.draw(1))


def test_values_of_another_library_come_to_a_start_of_numpy(other: Library) -> None:
    oracle = da.Sampler(lambda x, n, rng: other.array(2 * x))
    assert type(da.solve(da.Problem(oracle, START), da.SGDA(0.1), stop=da.Steps(3)).x) is np.ndarray


def test_a_point_that_an_oracle_changes_is_set_back() -> None:
    torch = pytest.importorskip("torch")

    class Careless(Shifted):
        def mean(self, x: Any, batch: da.Batch) -> Any:
            x += 1
            return super().mean(x, batch)

    with pytest.raises(da.errors.OracleError, match="must not change the point") as caught:
        da.solve(da.Problem(Careless(_library("torch")), torch.as_tensor(START)), da.SGDA(0.1), stop=da.Steps(3))
    np.testing.assert_array_equal(caught.value.result.x.numpy(), START)


@pytest.mark.parametrize(
    ("values", "message"),
    [([1.0, np.nan], "must be finite. Got nan at index 1"), ([[1.0]], r"must have shape \(d,\). Got shape \(1, 1\)")],
)
def test_a_start_must_be_a_finite_vector(other: Library, values: Any, message: str) -> None:
    with pytest.raises(da.errors.ArgumentError, match=message):
        da.Problem(Shifted(other), other.array(values))


def test_a_start_must_be_real(other: Library) -> None:
    with pytest.raises(da.errors.ArgumentTypeError, match="complex128"):
        da.Problem(Shifted(other), other.xp.asarray([1.0 + 1.0j], dtype=other.xp.complex128))


def test_nan_from_an_oracle_is_told(other: Library) -> None:
    oracle = da.AdditiveNoise(lambda x: x * float("nan"), vectorized=True)
    with pytest.raises(da.errors.OracleError, match="NaN for a point of norm"):
        da.solve(da.Problem(oracle, other.array(START)), da.SGDA(0.1), stop=da.Steps(2))


def test_the_blocks_of_a_saddle_point_are_of_one_library(other: Library) -> None:
    def gradient(u: Any, v: Any, n: int, rng: Any) -> Any:
        return u

    with pytest.raises(da.errors.ArgumentTypeError, match="of one library"):
        da.saddle(gradient, gradient, (other.array(START), START), budget=100)


def test_a_prox_of_this_library_takes_arrays_of_any(other: Library) -> None:
    found = da.inclusion(lambda x, n, rng: x - 2, da.prox.box(0, 1), other.array(START), budget=400, L=1.0).x
    assert arrays.alike(found, other.array(START))
    np.testing.assert_allclose(arrays.to_host(found), 1, rtol=1e-6)


def test_tensors_without_the_packages_of_the_extra_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    monkeypatch.setitem(sys.modules, "array_api_extra", None)
    monkeypatch.setattr(arrays, "_NAMESPACES", {np.ndarray: np})
    with pytest.raises(da.errors.MissingExtraError, match=r"array-api-compat.*dualanchor\[torch\]"):
        da.Problem(da.AdditiveNoise(lambda x: x), torch.ones(3))
    with pytest.raises(da.errors.MissingExtraError, match=r"array-api-extra.*dualanchor\[torch\]"):
        arrays.put(torch.ones(3), 0, 1.0)


def test_named_problems_say_that_they_compute_with_numpy():
    torch = pytest.importorskip("torch")
    with pytest.raises(da.errors.CapabilityError, match="huber-minimax computes with NumPy"):
        da.solve(da.problems.huber_minimax(dimension=4), da.SGDA(0.1), budget=9, x0=torch.ones(4))
