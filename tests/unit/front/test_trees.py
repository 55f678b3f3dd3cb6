"""Starts that are dicts, lists or modules, and functions that autograd differentiates."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.errors import OracleError

torch = pytest.importorskip("torch")


class Pair(NamedTuple):
    a: Any
    b: Any


STARTS = {
    "dict": {"a": np.zeros(2), "b": [np.ones((2, 2)), np.float64(3.0)]},
    "tuple": (np.zeros(2), np.ones(3)),
    "named tuple": Pair(np.zeros(2), {"c": np.ones(3)}),
    "tensors": {"a": torch.zeros(2), "b": (torch.ones(2, 2), torch.tensor(3.0))},
}


def like(tree, leaf):
    if isinstance(tree, dict):
        return {key: like(one, leaf) for key, one in tree.items()}
    if isinstance(tree, (list, tuple)):
        made = [like(one, leaf) for one in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    return leaf(tree)


def leaves(tree):
    found = []
    like(tree, found.append)
    return found


@pytest.mark.parametrize("reps", [1, 2])
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_sampler_and_result_have_the_form_of_the_start(start, reps):
    def sample(x, n, rng):
        assert type(x) is type(start)
        return like(x, lambda leaf: leaf - 1)

    result = da.root(sample, start, budget=100, L=1.0, reps=reps)
    assert type(result.x) is type(start)
    for found, given in zip(leaves(result.x), leaves(start), strict=True):
        assert tuple(found.shape) == ((reps,) if reps > 1 else ()) + tuple(given.shape)
        np.testing.assert_allclose(found, np.ones(found.shape), atol=0.05)


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_single_samples_are_averaged_leaf_by_leaf(start):
    def single(x, rng):
        assert type(x) is type(start)
        return like(x, lambda leaf: leaf - 1 + rng.normal())

    mean = da.each(single)(start, 4, np.random.default_rng(1))
    assert type(mean) is type(start)
    noise = np.random.default_rng(1).normal(size=(4, len(leaves(start)))).mean(axis=0)
    for found, given, error in zip(leaves(mean), leaves(start), noise, strict=True):
        np.testing.assert_allclose(found, given - 1 + error, rtol=1e-6)
    assert da.root(da.each(single), start, budget=200, L=1.0).draws > 100


def test_single_samples_that_are_numbers_or_of_another_form():
    sample = da.each(lambda x, rng: {"b": 1, "a": rng.integers(2)})
    mean = sample({"a": 0.0, "b": 0.0}, 4, np.random.default_rng(1))
    assert list(mean) == ["a", "b"]
    assert mean["b"] == 1.0
    assert mean["a"] == np.random.default_rng(1).integers(2, size=4).mean()
    with pytest.raises(OracleError, match=r"must return a tree like the start.* Got a dict of 'a'"):
        da.root(da.each(lambda x, rng: {"a": x["a"]}), {"a": 0.0, "b": 0.0}, budget=200)


def test_only_the_parts_of_a_saddle_point_are_printed_as_players():
    def lines(result):
        return {line.split(":")[0].strip(): line.split(":", 1)[1].strip() for line in repr(result).splitlines()}

    players = da.saddle(lambda *_: np.zeros(2), lambda *_: np.zeros(3), STARTS["tuple"], budget=100, L=1.0)
    pair = da.root(lambda x, n, rng: like(x, np.zeros_like), STARTS["tuple"], budget=100, L=1.0)
    assert (lines(players)["u"], lines(players)["v"]) == ("[0. 0.]", "[1. 1. 1.]")
    assert lines(pair)["x"] == "[[0. 0.], [1. 1. 1.]]"
    assert lines(pair).keys().isdisjoint("uv")


def test_samples_themselves_and_starts_from_results():
    def sample(x, n, rng):
        return {"a": x["a"] - 1 + rng.normal(size=(n, 2)), "b": 2 * x["b"]}

    first = da.root(sample, {"a": np.zeros(2), "b": np.ones(3)}, budget=2000)
    second = da.root(sample, first, budget=2000)
    assert list(second.x) == ["a", "b"]
    np.testing.assert_allclose(second.x["a"], 1, atol=0.3)
    assert "a" in str(second)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": np.zeros(2)}, r"sample must return a tree like the start.*Got a dict of 'a'.*Return a dict of 'a', 'b'"),
        (
            {"a": np.zeros(3), "b": np.zeros(3)},
            r"sample, in a leaf of shape \(2,\), must return the mean of n.*Got shape \(3,\) ",
        ),
    ],
)
def test_another_tree_is_refused(value, message):
    with pytest.raises(da.errors.OracleError, match=message):
        da.root(lambda x, n, rng: value, {"a": np.zeros(2), "b": np.ones(3)}, budget=200)


def phi(u, v, n, rng):
    noise = torch.randn(n, 3, generator=rng).mean(0)
    return u["w"] @ u["w"] / 2 + u["w"] @ (v + noise) - v @ v / 2 + v.sum()


@pytest.mark.slow
def test_a_function_of_both_players_takes_one_backward_pass_per_batch():
    calls = []

    def counted(u, v, n, rng):
        calls.append(isinstance(rng, torch.Generator))
        return phi(u, v, n, rng)

    result = da.saddle(counted, ({"w": torch.ones(3)}, torch.ones(3)), budget=6000, check=False, certificate=False)
    u, v = result.x
    np.testing.assert_allclose(u["w"], [-0.5] * 3, atol=0.15)  # u + v = 0, u - v + 1 = 0
    np.testing.assert_allclose(v, [0.5] * 3, atol=0.15)
    assert all(calls)
    again = da.saddle(phi, ({"w": torch.ones(3)}, torch.ones(3)), budget=6000, check=False, certificate=False)
    assert torch.equal(again.x[1], v)  # the seed decides


def test_dropout_is_seen_to_draw_from_elsewhere():
    model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Dropout(0.01))

    def loss(u, v, n, rng):
        inputs = torch.randn(n, 3, generator=rng) + v
        return (torch.func.functional_call(model, u, inputs) - 1).square().mean() - v @ v

    for training in (True, False):
        found = da.saddle(loss, (model.train(training), torch.zeros(3)), budget=300, certificate=False)
        assert ("own-randomness" in {one.code for one in found.findings}) == training


@pytest.mark.slow
def test_a_module_is_the_dict_of_its_parameters():
    torch.manual_seed(0)
    model, x = torch.nn.Linear(3, 1), torch.randn(100, 3)
    model.bias.requires_grad_(False)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + model.bias

    def loss(u, v, n, rng):
        rows = torch.randint(100, (n,), generator=rng)
        return (torch.func.functional_call(model, u, x[rows]) - y[rows] - v).square().mean() - 2 * v @ v

    u, _ = da.saddle(loss, (model, torch.zeros(1)), budget=6000).x
    assert list(u) == ["weight"]
    np.testing.assert_allclose(u["weight"], [[1.0, -2.0, 0.5]], atol=0.1)
    model.load_state_dict(u, strict=False)


def test_large_tensors_are_printed_short():
    result = da.root(lambda x, n, rng: x - 1, torch.zeros(100_000), budget=200)
    tree = da.root(lambda x, n, rng: {"a": x["a"] - 1}, {"a": torch.zeros(100_000)}, budget=200)
    assert max(len(str(result)), len(str(tree)), len(repr(tree)), len(tree._repr_html_())) < 3000


LINEAR = torch.nn.Linear(3, 2)
BAD = {
    "arrays": ((np.ones(3), np.ones(3)), phi, TypeError, "the start must be of PyTorch or JAX. Got ndarray. Start"),
    "devices": (
        (torch.ones(3), torch.ones(3, device="meta")), phi, ValueError,
        "the start must be on one device. Got cpu and meta. Move",
    ),
    "meta": (
        (torch.nn.Linear(3, 2, device="meta"), torch.ones(3, device="meta")), phi, ValueError,
        r"the start must have numbers. Got a tensor on the device meta. Give it .* to_empty\(\)",
    ),
    "no generator": (
        (torch.ones(3), torch.ones(3)), lambda u, v, n: u @ v, TypeError,
        r"phi must accept phi\(u, v, n, rng\). Got one with \(u, v, n\). Change its arguments",
    ),
    "rows": (
        (torch.ones(3), torch.ones(3)), lambda u, v, n, rng: u * v, RuntimeError,
        r"phi must return one number. Got shape \(3,\). Return the mean over the samples",
    ),
    "no graph": (
        (torch.ones(3), torch.ones(3)), lambda u, v, n, rng: torch.tensor(1.0), RuntimeError,
        "phi must return one number. Got a number without a graph.*Return a tensor made from u and v",
    ),
    "no graph to u": (
        (LINEAR, torch.ones(3)), lambda u, v, n, rng: LINEAR(v).square().sum() - v @ v, RuntimeError,
        r"phi must depend on u. Got a number that is not computed from u. .* torch.func.functional_call\(module, u,",
    ),
    "no graph to v": (
        (torch.ones(3), {"a": torch.ones(3), "b": torch.ones(2)}), lambda u, v, n, rng: u @ u, RuntimeError,
        "phi must depend on v. Got a number that is not computed from v. Compute it from the v that is passed",
    ),
    "a call of a module": (
        (LINEAR, torch.ones(3)), lambda u, v, n, rng: u(v).sum(), RuntimeError,
        r"phi must not raise. Got TypeError: 'dict' .*the dict of its parameters: .*functional_call",
    ),
    "batch norm": (
        (torch.nn.BatchNorm1d(3), torch.ones(3)), phi, ValueError,
        r"must not depend on the other samples.*Got a module \(BatchNorm1d\) in training mode. Call module.eval",
    ),
    "batch norm without statistics": (
        (torch.nn.BatchNorm1d(3, track_running_stats=False).eval(), torch.ones(3)), phi, ValueError,
        r"Got a module \(BatchNorm1d\) without running statistics. Use track_running_stats=True and module.eval\(\)",
    ),
    "bfloat16": (
        (torch.ones(3).bfloat16(), torch.ones(3).bfloat16()), phi, TypeError,
        r"must have a dtype that NumPy has too. Got a tensor of torch.bfloat16. Pass x0.float\(\)",
    ),
    "frozen": (
        (torch.nn.Linear(2, 2).requires_grad_(False), torch.ones(3)), phi, ValueError,
        r"must have parameters that require gradients. Got a Linear without them. Call requires_grad_\(\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("start", "function", "error", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_differentiated_is_said_in_three_parts(start, function, error, message):
    with pytest.raises(error, match=f"saddle: .*{message}"):
        da.saddle(function, start, budget=200)


def test_a_leaf_that_is_not_used_has_a_zero_gradient():
    start = {"w": torch.ones(3), "spare": torch.ones(2)}, torch.ones(3)
    result = da.saddle(phi, start, budget=200, check=False, certificate=False)
    assert torch.equal(result.x[0]["spare"], torch.ones(2))


def test_inference_mode_is_named_as_the_cause():
    rule = r"phi must return one number. Got a number without a graph, in torch.inference_mode\(\). Leave that mode"
    with torch.inference_mode(), pytest.raises(RuntimeError, match=rule):
        da.saddle(lambda u, v, n, rng: u @ u - v @ v, (torch.ones(3), torch.ones(3)), budget=200)


def test_instance_norm_may_be_without_statistics():
    """Its samples do not depend on each other."""
    module = torch.nn.InstanceNorm1d(2, affine=True)
    result = da.root(lambda p, n, rng: {name: value - 1 for name, value in p.items()}, module, budget=200)
    assert list(result.x) == ["weight", "bias"]


@pytest.mark.parametrize("door", [da.root, da.fixed_point])
def test_half_precision_is_float16_only(door):
    def sample(p, n, generator):
        noise = torch.randn(2, generator=generator).to(p["a"]) / n**0.5
        return {"a": p["a"] - 1 + noise if door is da.root else (p["a"] + 1 + noise) / 2}

    result = door(sample, {"a": torch.zeros(2, dtype=torch.float16)}, budget=2000)
    assert result.x["a"].dtype is torch.float16
    np.testing.assert_allclose(result.x["a"], 1.0, atol=0.1)
    with pytest.raises(
        TypeError, match=rf"{door.__name__}: the start must have a dtype .* Got a tensor of torch.bfloat"
    ):
        door(sample, {"a": torch.zeros(2, dtype=torch.bfloat16)}, budget=2000)


@pytest.mark.parametrize("leaf", [1.0, None, np.zeros(()), np.float64(1.0)], ids=lambda leaf: type(leaf).__name__)
def test_a_leaf_that_is_no_tensor_is_named(leaf):
    kind = type(leaf).__name__
    rule = (
        rf"root: sample, in a leaf of shape \(\), must return an array of the library of x. Got {kind} for .*\. Compute"
    )
    with pytest.raises(da.errors.OracleError, match=rule):
        da.root(lambda p, n, rng: {"a": p["a"], "b": leaf}, {"a": torch.ones(2), "b": torch.zeros(())}, budget=200)


def test_a_generator_needs_a_start_in_torch():
    def sample(x, n, generator):
        return x + torch.randn(2, generator=generator).numpy()

    message = r"root: sample gets a torch\.Generator only .* Got TypeError: .* Start from a tensor"
    with pytest.raises(da.errors.OracleError, match=message) as caught:
        da.root(sample, np.zeros(2), budget=1000)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("start", [torch.zeros(2), {"a": torch.zeros(2)}])
def test_a_generator_of_torch_needs_its_name(start):
    """The start is a tensor already: only the name of the parameter is missing."""

    def sample(x, n, rng):
        return torch.randn(2, generator=rng)

    message = (
        r"root: sample gets a torch\.Generator only if its parameter is called generator\. .* Call the parameter gen"
    )
    with pytest.raises(da.errors.OracleError, match=message) as caught:
        da.root(sample, start, budget=1000)
    assert "Start from" not in str(caught.value)


def test_whole_numbers_get_the_default_dtype():
    matrix = 2 * torch.eye(2)
    result = da.root(lambda x, n, rng: matrix @ x - 1, torch.tensor([3, 4]), budget=200, check=False, certificate=False)
    assert result.x.dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert da.root(lambda x, n, rng: x - 1, torch.tensor([3, 4]), budget=200, check=False).x.dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_gradient_at_a_point_without_a_graph_is_told_how_to_begin():
    def sample(x, n, generator):
        return torch.autograd.grad(x @ x, x)[0]

    message = r"root: sample must not raise\. .*differentiate at x = x\.detach\(\)\.requires_grad_\(\)"
    with pytest.raises(da.errors.OracleError, match=message):
        da.root(sample, torch.ones(2), budget=200)
