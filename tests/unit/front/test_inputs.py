"""What is wrong with a question is said before it is answered, or as soon as it shows."""

import re

import numpy as np
import pytest
from tests.unit.front.samplers import Counted, codes

import dualanchor as da
from dualanchor.core.errors import (
    ArgumentError,
    ArgumentTypeError,
    AssumptionWarning,
    CapabilityError,
    OracleError,
    UnknownNameError,
)

ZERO = np.zeros(2)
DOORS = {
    "root": lambda sample, x0=ZERO, **keywords: da.root(sample, x0, **keywords),
    "fixed_point": lambda sample, x0=ZERO, **keywords: da.fixed_point(sample, x0, **keywords),
    "inclusion": lambda sample, x0=ZERO, **keywords: da.inclusion(sample, da.prox.box(0, 1), x0, **keywords),
}

KEYWORDS = [
    ({}, ArgumentError, "exactly one of eps and budget must be given. Got neither. Pass eps=0.05 or budget=10_000."),
    ({"eps": 0.1, "budget": 10}, ArgumentError, "must be given. Got eps=0.1 and budget=10"),
    ({"budget": 10, "bugdet": 10}, TypeError, "unexpected keyword argument 'bugdet'"),
    ({"budget": 10, "door": "x"}, TypeError, "unexpected keyword argument 'door'"),
    ({"tol": 0.1}, TypeError, "unexpected keyword argument 'tol'"),
    ({"budget": 10, "maxiter": 9}, TypeError, "unexpected keyword argument 'maxiter'"),
    ({"budget": 10, "learning_rate": 1}, TypeError, "keyword argument 'learning_rate'"),
    ({"budget": 10, "random_state": 1}, TypeError, "unexpected keyword argument 'random_state'"),
    ({"budget": 10, "progress": 3}, ArgumentTypeError, "progress must be True or a function. Got 3. Use True."),
    ({"budget": 0}, ArgumentError, "budget must be at least 1. Got 0"),
    ({"budget": 10.5}, ArgumentTypeError, "budget must be an integer. Got 10.5"),
    ({"budget": True}, ArgumentTypeError, "budget must be an integer. Got True"),
    ({"eps": 0}, ArgumentError, "eps must be positive and finite. Got 0"),
    ({"eps": float("nan")}, ArgumentError, "eps must be positive and finite. Got nan"),
    ({"eps": "small"}, ArgumentTypeError, "eps must be a number. Got 'small'"),
    ({"budget": 100, "max_samples": 50}, ArgumentError, "max_samples goes with eps; a budget is a limit itself. Got b"),
    ({"eps": 0.1, "max_samples": -1}, ArgumentError, "max_samples must be at least 1. Got -1"),
    ({"budget": 10, "seed": -1}, ArgumentError, "seed must be at least 0. Got -1"),
    ({"budget": 10, "check": [1, 1]}, ArgumentTypeError, "check must be True or False. Got [1, 1]"),
    ({"budget": 10, "guarantee": "yes"}, ArgumentTypeError, "guarantee must be True or False. Got 'yes'"),
    ({"budget": 10, "rng": 5}, ArgumentTypeError, "rng must be a numpy.random.Generator. Got 5"),
    ({"budget": 10, "rng": np.random.default_rng(0), "seed": 1}, ArgumentError, "only one of seed and rng may be"),
    ({"budget": 10, "reps": 0}, ArgumentError, "reps must be at least 1. Got 0"),
    ({"budget": 10, "confidence": 1}, ArgumentError, "confidence must be strictly between 0 and 1. Got 1"),
    ({"budget": 10, "confidence": "high"}, ArgumentTypeError, "confidence must be a number. Got 'high'"),
    ({"budget": 10, "method": "dual-ohmm"}, UnknownNameError, "Did you mean dual-ohm"),
    ({"budget": 10, "method": 3}, ArgumentTypeError, "method must be a name or a Method. Got 3"),
    ({"budget": 10, "callback": 3}, ArgumentTypeError, "callback must be callable. Got 3"),
    ({"budget": 10, "L": 1.0, "mu": 2.0}, ArgumentError, "mu must be at most L. Got mu = 2.0, L = 1.0"),
    *(
        ({"budget": 10, name: value}, ArgumentError, f"{name} must be {sign} and finite. Got {value}")
        for name, sign in (("L", "positive"), ("M", "positive"), ("mu", "non-negative"), ("sigma", "non-negative"))
        for value in (float("nan"), float("inf"), -1.0)
    ),
    ({"budget": 10, "D": float("inf")}, ArgumentError, "D must be non-negative and finite. Got inf"),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("keywords", "error", "text"), KEYWORDS)
def test_keywords(door, keywords, error, text):
    sample = Counted()
    with pytest.raises(error, match=re.escape(text)) as caught:
        DOORS[door](sample, **{"L": 1.0, **keywords})
    assert sample.samples == 0
    if error is TypeError:  # Python's own, for a keyword that is not in the signature
        return
    assert str(caught.value).count("Got") == 1
    if "callback" not in keywords and "dual-ohmm" not in keywords.values():
        assert str(caught.value).startswith(door)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("x0", "error", "text"),
    [
        (np.array([0.0, np.inf]), ArgumentError, "the start must be finite numbers. Got a start with NaN or infinity"),
        ([np.nan], ArgumentError, "a start with NaN"),
        ([], ArgumentError, "an empty array"),
        ([[1.0], [1.0, 2.0]], ArgumentTypeError, "the start must be made of real numbers"),
        (["a"], ArgumentTypeError, "the start must be made of real numbers"),
        (np.array([1j]), ArgumentTypeError, "the start must be made of real numbers"),
        (None, ArgumentTypeError, "the start must be made of real numbers"),
    ],
)
def test_starts(door, x0, error, text):
    with pytest.raises(error, match=f"{door}: .*{text}"):
        DOORS[door](Counted(), x0, budget=10, L=1.0)


@pytest.mark.parametrize("x0", [np.zeros(2), (np.zeros(2),), (1.0, 2.0, 3.0)])
def test_a_saddle_point_starts_from_two_blocks(x0):
    with pytest.raises(ArgumentTypeError, match="saddle: the start must be a tuple of 2 arrays"):
        da.saddle(lambda u, v, n, rng: u, lambda u, v, n, rng: v, x0, budget=10, L=1.0)


@pytest.mark.parametrize("door", DOORS)
def test_signatures(door):
    with pytest.raises(ArgumentTypeError, match=rf"{door}: sample must accept sample\(x, n, rng\)"):
        DOORS[door](lambda x: x, budget=10, L=1.0)
    with pytest.raises(ArgumentTypeError, match=rf"{door}: sample must accept sample\(x, n, rng, \*args\)"):
        DOORS[door](lambda x, n, rng: x, args=(1,), budget=10, L=1.0)
    with pytest.raises(ArgumentTypeError, match=f"{door}: sample must be a function"):
        DOORS[door](3, budget=10, L=1.0)


@pytest.mark.parametrize("door", [*DOORS, "saddle"])
@pytest.mark.parametrize("args", [3, "ab", None, np.ones(2)])
def test_arguments_come_as_a_tuple(door, args):
    def sample(*given):
        return ZERO

    def saddle(sample, **keywords):
        return da.saddle(sample, sample, (ZERO, ZERO), **keywords)

    with pytest.raises(ArgumentTypeError, match=rf"^{door}: args must be a tuple. Got .*args=\(value,\)"):
        {**DOORS, "saddle": saddle}[door](sample, args=args, budget=300, L=1.0)


def test_signatures_of_two():
    with pytest.raises(ArgumentTypeError, match=r"saddle: sample_v must accept sample_v\(u, v, n, rng\)"):
        da.saddle(lambda u, v, n, rng: u, lambda v, n, rng: v, (0.0, 0.0), budget=10, L=1.0)
    with pytest.raises(ArgumentTypeError, match=r"inclusion: prox must accept prox\(z, step\)"):
        da.inclusion(Counted(), lambda z: z, ZERO, budget=10, L=1.0)
    with pytest.raises(ArgumentError, match="inclusion: without L a budget of at least 128 is needed"):
        da.inclusion(Counted(), da.prox.box(0, 1), ZERO, budget=10)


BROKEN = {
    "length": (lambda x, n, rng: np.zeros(3), r"must return the mean of n samples, .* Got shape \(3,\) for x of shape"),
    "shape": (lambda x, n, rng: np.zeros((n + 1, 2)), "of the shape of x, or n samples. Got shape"),
    "single": (lambda x, n, rng: 0.0, r"or n samples. Got shape \(\) for x of shape \(2,\)"),
    "None": (lambda x, n, rng: None, "must return real numbers. Got None"),
    "NaN": (lambda x, n, rng: np.full(2, np.nan), "NaN"),
    "text": (lambda x, n, rng: np.array(["a", "b"]), "real numbers"),
    "raising": (lambda x, n, rng: 1 / 0, "must not raise. Got ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize(
    "route", [{"budget": 20}, {"budget": 2000}, {"eps": 0.1}, {"eps": 0.1, "sigma": 1.0, "D": 2.0}]
)
def test_broken_samplers(what, route):
    sample, text = BROKEN[what]
    with pytest.raises(OracleError, match=text):
        da.root(sample, ZERO, L=1.0, **route)


@pytest.mark.parametrize(
    ("door", "shape"), [("root", ()), ("root", (3,)), ("fixed_point", ()), ("fixed_point", (2, 2)), ("inclusion", (3,))]
)
def test_samples_may_be_returned_in_the_place_of_their_mean(door, shape):
    def samples(x, n, rng):
        return 0.5 * x + rng.normal(size=(n, *shape))

    x0, found = np.zeros(shape), []
    for sample in (samples, lambda x, n, rng: samples(x, n, rng).mean(axis=0)):
        found.append(DOORS[door](sample, x0, budget=300, L=2.0, method=da.SGDA(0.5, 4)))
    np.testing.assert_allclose(found[0].x, found[1].x, rtol=1e-12)
    assert np.shape(found[0].x) == shape


def test_a_sampler_that_fails_on_the_way_leaves_its_result():
    for door in ("root", "inclusion"):
        calls = []

        def sample(x, n, rng, calls=calls):
            calls.append(x)
            if len(calls) > 30:
                raise RuntimeError("the machine is on fire")
            return x - 1

        with pytest.raises(OracleError, match="RuntimeError: the machine is on fire") as caught:
            DOORS[door](sample, np.zeros((2, 2)), budget=50, L=1.0, check=False, certificate=False)
        result = caught.value.result
        assert result.status is da.Status.FAILED
        assert result.x.shape == (2, 2)
        assert not result.success


def test_a_sampler_that_fails_in_the_calibration_leaves_no_result_and_says_so():
    with pytest.raises(OracleError, match=r"the result so far, if any, is in \.result of this one") as caught:
        da.root(lambda x, n, rng: 1 / 0, ZERO, budget=2000)
    assert caught.value.result is None


def test_randomness_of_its_own_is_refused_only_where_it_matters():
    own = np.random.default_rng(0)

    def sample(x, n, rng):
        return x - 1 + own.normal(size=2) / np.sqrt(n)

    with pytest.raises(CapabilityError, match="needs an oracle whose samples can be evaluated at two points"):
        da.root(sample, ZERO, budget=2000, L=1.0, method="halpern-page")
    with pytest.raises(CapabilityError, match="evaluated at two points"):
        da.root(sample, ZERO, eps=0.5, L=1.0, method="halpern-page")
    result = da.root(sample, ZERO, budget=2000, L=1.0)
    assert codes(result, "warning") == ["own-randomness", "not-replayable"]
    assert "sample takes randomness from elsewhere than rng (np.random, torch.randn, a layer" in repr(result)
    declared = da.root(da.Sampler(sample, replayable=False), ZERO, budget=2000, L=1.0)
    assert codes(declared, "warning") == ["not-replayable"]


def test_a_sum_instead_of_a_mean_is_noticed():
    def sample(x, n, rng):
        return n * (x - 1) + rng.normal(size=(n, 2)).sum(axis=0)

    with (
        pytest.warns(AssumptionWarning, match="has .* times the variance that independent samples give"),
        pytest.warns(AssumptionWarning, match="returns a sum in place of a mean"),
    ):
        result = da.root(sample, ZERO, budget=12_000, L=1.0, sigma=2.0, D=2.0, guarantee=True)
    assert "a sum in place of a mean" in repr(result)
    assert result.claim.kind is da.ClaimKind.NONE


def test_a_warning_names_the_users_line():
    sample, x0, keywords = Counted(lambda x: -x), np.ones(2), {"budget": 2000, "L": 1.0}
    doors = [
        lambda: da.root(sample, x0, **keywords),
        lambda: da.root(sample, x0, method="sgda", **keywords),
        lambda: da.inclusion(sample, da.prox.box(-1e9, 1e9), x0, **keywords),
    ]
    for door in doors:
        with pytest.warns(AssumptionWarning, match="decreasing") as caught:
            door()
        assert [record.filename for record in caught] == [__file__]


@pytest.mark.parametrize(
    ("prox", "text"),
    [
        (lambda z, step: 2 * z, "is not firmly nonexpansive"),
        (lambda z, step: z - step * 5 * z, "is not firmly nonexpansive"),
        (lambda z, step: z / 2, "does not depend on its step as it must"),
        (lambda z, step: np.full_like(z, np.nan), "does not return numbers"),
    ],
)
def test_what_cannot_be_a_prox(prox, text):
    sample = Counted()
    with pytest.raises(ArgumentError, match=text):
        da.inclusion(sample, prox, ZERO, budget=100, L=1.0)
    assert sample.samples == 0


def test_constants_that_a_method_cannot_do_without():
    with pytest.raises(ArgumentError, match=r"root: dual-ohm is planned from L, sigma and D. Got no sigma, D"):
        da.root(Counted(), ZERO, eps=0.1, L=1.0, method="dual-ohm")
    with pytest.raises(ArgumentError, match="root: a guarantee needs L or M"):
        da.root(Counted(), ZERO, budget=1000, guarantee=True)
    with pytest.raises(
        ArgumentError, match=r"a budget too small for calibration needs sigma and D for a guarantee. Got 1000"
    ):
        da.root(Counted(), ZERO, budget=1000, L=1.0, guarantee=True)
    with pytest.raises(ArgumentError, match="D could not be estimated"):
        da.root(Counted(lambda x: 0 * x, sigma=0.0), ZERO, budget=5000, L=1.0, guarantee=True)
    with pytest.raises(ArgumentError, match=r"without L a budget of at least 128 is needed. Got 100"):
        da.root(Counted(), ZERO, budget=100)
    with pytest.raises(ArgumentError, match="confidence with eps makes replications of its own"):
        da.root(Counted(), ZERO, eps=0.1, L=1.0, sigma=1.0, D=1.0, confidence=0.9, reps=2)
    with pytest.raises(ArgumentError, match="step_size must be given"):
        da.root(Counted(), ZERO, eps=0.1, method="sgda")


def test_a_problem_is_for_solve():
    with pytest.raises(
        ArgumentTypeError, match=r"Got 'Affine'. Use dualanchor.solve for a Problem, or pass its oracle"
    ):
        da.root(da.problems.affine(), np.zeros(2), budget=100)


@pytest.mark.parametrize("keywords", [{}, {"reps": 2}, {"bounds": (0.0, 2.0)}])
def test_a_sampler_that_fails_after_the_run_does_not_lose_it(keywords):
    """The certificate raised an error without a result, though its message speaks of one."""
    calls, last = [], None

    def sample(x, n, rng):
        calls.append(n)
        if len(calls) == last:
            raise ValueError("gone")
        return x - 1 + 0.1 * rng.normal(size=2) / np.sqrt(n)

    whole = da.root(sample, np.zeros(2), budget=600, L=1.0, **keywords)
    last = len(calls) - 1
    calls.clear()
    with pytest.raises(OracleError, match="gone") as caught:
        da.root(sample, np.zeros(2), budget=600, L=1.0, **keywords)
    result = caught.value.result
    np.testing.assert_array_equal(result.x, whole.x)
    assert not np.any(result.success)
    assert result.certificate is None
