"""Where the operator is sampled: trees, modules, results of them, and further arguments of the sampler."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import ArgumentTypeError, OracleError

TARGET = np.array([1.0, -2.0, 0.5])


def flat(x, n, rng, target=TARGET):
    return x - target + rng.normal(size=(n, 3)).mean(axis=0)


def nested(x, n, rng):
    """The same samples, of a dict with a number and a vector."""
    assert np.shape(x["b"]) == ()
    value = flat(np.append(x["w"], x["b"]), n, rng)
    return {"b": value[2], "w": value[:2]}


def in_blocks(x, n, rng):
    """The same samples, of a tuple of blocks."""
    value = flat(np.concatenate(x), n, rng)
    return value[:2], value[2:]


POINT = np.array([0.9, -2.0, 0.5])
TREE = {"w": POINT[:2], "b": POINT[2]}
BLOCKS = (POINT[:2], POINT[2:])


@pytest.fixture(scope="module")
def of_dict():
    return da.root(nested, {"w": np.zeros(2), "b": np.float64(0.0)}, budget=2000, reps=2)


@pytest.mark.parametrize(("sample", "x"), [(nested, TREE), (in_blocks, BLOCKS)], ids=["dict", "tuple"])
def test_a_tree_is_the_vector_of_its_leaves(sample, x):
    for function in (da.certify, da.infer, da.calibrate):
        of_tree, of_vector = function(sample, x, samples=256), function(flat, POINT, samples=256)
        assert of_tree.to_dict() | {"names": []} == of_vector.to_dict() | {"names": []}


def test_inference_has_the_names_of_the_leaves():
    x = {"w": [np.ones((1, 2)), {"to": np.ones(1)}], "b": np.float64(1.0)}

    def sample(x, n, rng):
        noise = rng.normal(size=(n, 4)).mean(axis=0)
        return {"w": [x["w"][0] + noise[:2], {"to": x["w"][1]["to"] + noise[2:3]}], "b": x["b"] + noise[3]}

    found = da.infer(sample, x, samples=64)
    assert found.names == ("w[0][0, 0]", "w[0][0, 1]", "w[1].to[0]", "b")
    assert [line.strip().split("  ")[0] for line in repr(found).splitlines()[2:]] == list(found.names)
    assert da.infer(in_blocks, BLOCKS, samples=64).names == ("x[0][0]", "x[0][1]", "x[1][0]")
    unnamed = da.infer(flat, POINT, samples=64)
    assert unnamed.names == ()
    assert "    x[2] " in repr(unnamed)


def test_a_vector_oracle_takes_a_tree():
    assert da.certify(da.Sampler(flat), TREE, samples=64) == da.certify(da.Sampler(flat), POINT, samples=64)


@pytest.mark.parametrize("function", [da.certify, da.infer, da.calibrate])
def test_a_sampler_around_a_function_of_another_form_is_refused(function):
    message = rf"{function.__name__}: the function of a Sampler gets .* vectors.* Got .*\. Pass the function itself"
    square = da.root(lambda x, n, rng: x - 1 + np.eye(2), np.zeros((2, 2)), budget=200)
    for sample, x in [(nested, TREE), (lambda x, n, rng: x @ np.eye(2), square), (lambda x, n, rng: float(x[0]), 0.5)]:
        with pytest.raises(OracleError, match=message):
            function(da.Sampler(sample), x, samples=64)


def test_points_of_any_form_are_vectors_for_an_oracle():
    def noisy(x, n, rng):
        return x - 1 + rng.normal(size=(n, *x.shape))

    def of_square(x, n, rng):
        assert x.shape == (2, 2)
        return noisy(x, n, rng)

    square = da.root(of_square, np.zeros((2, 2)), budget=500)
    wanted = da.certify(of_square, square, samples=64)
    for sampler in (da.Sampler(noisy), da.Sampler(of_square, shape=(2, 2))):
        assert da.certify(sampler, square, samples=64) == wanted  # of one point, not of two
    for function in (da.certify, da.infer, da.calibrate):
        assert function(da.Sampler(noisy), 0.5, samples=64).to_dict() == function(noisy, 0.5, samples=64).to_dict()


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 3, 1)])
def test_a_calibrated_function_gets_the_shape_of_the_start(shape):
    def sample(x, n, rng):
        assert x.shape == shape
        return flat(x.reshape(-1), n, rng).reshape(shape)

    assert repr(da.calibrate(sample, POINT.reshape(shape), samples=64)) == repr(da.calibrate(flat, POINT, samples=64))


def test_results_of_trees(of_dict):
    certificate = da.certify(nested, of_dict, samples=256)
    assert certificate.upper.shape == (2,)
    for row in range(2):
        one = np.append(of_dict.x["w"][row], of_dict.x["b"][row])
        assert certificate.residual[row] == pytest.approx(np.linalg.norm(one - TARGET), abs=0.25)
    single = da.root(nested, {"w": np.zeros(2), "b": np.float64(0.0)}, budget=2000)
    found = single.infer(nested, samples=2000)
    np.testing.assert_allclose(found.estimate, TARGET, atol=0.15)  # six standard errors
    assert da.calibrate(nested, single, samples=200).evals <= 200


def test_results_of_saddle_points():
    """Also those with blocks of one shape, which would make one array."""

    def u_part(u, v, n, rng):
        return u + v + 0.1 * rng.normal(size=2) / np.sqrt(n)

    def v_part(u, v, n, rng):
        return u - v + 0.1 * rng.normal(size=2) / np.sqrt(n)

    def operator(x, n, rng):
        u, v = x
        return u_part(u, v, n, rng), -v_part(u, v, n, rng)

    result = da.saddle(u_part, v_part, (np.ones(2), np.ones(2)), budget=2000)
    assert da.certify(operator, result, samples=256).holds_for(0.2)
    found = result.infer(operator, samples=2000)
    np.testing.assert_allclose(found.estimate, 0, atol=0.03)
    assert found.names == ("u[0]", "u[1]", "v[0]", "v[1]")


def test_args_reach_the_sampler():
    shifted = TARGET + 1

    def sample(x, n, rng, target):
        return flat(x, n, rng, target)

    bound = da.certify(lambda x, n, rng: sample(x, n, rng, shifted), POINT, samples=256)
    assert da.certify(sample, POINT, args=(shifted,), samples=256) == bound
    assert da.best_of(sample, [POINT], args=(shifted,), samples=256)[1].upper == bound.upper
    result = da.root(sample, np.zeros(3), args=(shifted,), budget=1000)
    for found in (
        result.infer(sample, args=(shifted,), samples=512),
        da.infer(sample, POINT, args=[shifted], samples=512),
    ):
        np.testing.assert_allclose(found.estimate, shifted, atol=0.3)
    box = da.prox.box(-5, 5)
    gap = da.certify_gap(sample, POINT, box, args=(TARGET,), samples=256)
    assert gap.gap == da.certify_gap(flat, POINT, box, samples=256).gap


@pytest.mark.parametrize("function", [da.certify, da.infer, da.calibrate])
def test_missing_args_are_named(function):
    message = r"sample must accept sample\(x, n, rng\)\. Got .*b\)\. .* bind further ones by args="
    with pytest.raises(ArgumentTypeError, match=message):
        function(lambda x, n, rng, b: x - b, POINT, samples=64)


def test_args_without_a_function():
    with pytest.raises(ArgumentTypeError, match=r"certify: args .* function .* Got args and a Sampler"):
        da.certify(da.Sampler(flat), POINT, args=(1.0,), samples=64)
    with pytest.raises(ArgumentTypeError, match="certify: args must be a tuple"):
        da.certify(flat, POINT, args=TARGET, samples=64)


def test_modules_and_tensors():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 1).double()

    def gradient(parameters, n, generator):
        noise = torch.randn(n, 3, generator=generator, dtype=torch.float64).mean(0)
        return {"weight": parameters["weight"] - 1 + noise[:2], "bias": parameters["bias"] + noise[2:]}

    result = da.root(gradient, module, budget=1000)
    at_start, at_end = (da.certify(gradient, x, samples=256) for x in (module, result))
    assert at_end.upper < at_start.upper
    assert da.certify(gradient, result.x, samples=256) == at_end
    assert da.calibrate(gradient, module, samples=200).evals <= 200
    np.testing.assert_allclose(result.infer(gradient, samples=512).estimate, [1, 1, 0], atol=0.3)


@pytest.mark.slow
def test_trees_and_args_in_jax():
    jax = pytest.importorskip("jax")

    def sample(x, n, key, target):
        value = x["w"] - target + jax.random.normal(key, (2,)) / jax.numpy.sqrt(n)
        return {"w": value, "b": x["b"] - 2}

    start = {"w": jax.numpy.zeros(2), "b": jax.numpy.zeros(())}
    result = da.root(sample, start, args=(3.0,), budget=1000)
    assert da.certify(sample, start, args=(3.0,), samples=256).lower > 1
    assert da.certify(sample, result, args=(3.0,), samples=256).upper < 1
    np.testing.assert_allclose(result.infer(sample, args=(3.0,), samples=512).estimate, [3, 3, 2], atol=0.3)


def test_calibrate_passes_further_arguments():
    def sample(x, n, rng, target):
        return flat(x, n, rng, target)

    found = da.calibrate(sample, np.zeros(3), samples=256, args=(2 * TARGET,))
    assert found.residual == pytest.approx(np.linalg.norm(2 * TARGET), rel=0.2)
