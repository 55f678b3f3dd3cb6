"""Every prox against a reference that knows nothing of its formula, and what all of them have in common."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize

import dualanchor as da
from dualanchor import prox

pytestmark = pytest.mark.slow

D = 5
rng = np.random.default_rng(3)
A = np.array([[1.0, 2.0, 0.0, -1.0, 0.5], [0.0, 1.0, 1.0, 0.0, -2.0], [1.0, 3.0, 1.0, -1.0, -1.5]])  # the last is a sum
b = A @ np.arange(5.0)
LOWER, UPPER = np.array([-np.inf, 0.0, 1.0, -1.0, -2.0]), np.array([0.5, np.inf, 1.0, 3.0, -1.0])
CENTER = np.array([1.0, 0.0, -1.0, 0.5, 0.0])
WEIGHTS = np.array([0.0, 0.5, 1.0, 2.0, 4.0])
STEP = 0.7

EVERY = {
    "box": prox.box(-0.5, 1.0),
    "box of arrays": prox.box(LOWER, UPPER),
    "half lines": prox.box(-np.inf, 0.3),
    "nonnegative": prox.nonnegative(),
    "ball": prox.ball(1.5),
    "ball elsewhere": prox.ball(2.0, CENTER),
    "point": prox.ball(0.0, CENTER),
    "simplex": prox.simplex(),
    "scaled simplex": prox.simplex(2.5),
    "l1": prox.l1(0.8),
    "weighted l1": prox.l1(WEIGHTS),
    "subspace": prox.affine_subspace(A, b),
    "single equation": prox.affine_subspace(np.ones((1, D)), 1.0),
    "none": prox.none(),
    "product": prox.product([(2, prox.simplex()), (1, prox.l1(1.0)), (2, prox.ball(1.0))]),
    "function": prox.from_function(lambda z, step: z / (1 + step)),
    "function of rows": prox.from_function(lambda z, step: np.clip(z, -1, 1), is_projection=True, vectorized=True),
}
every = pytest.mark.parametrize("name", EVERY)
POINTS = np.concatenate([3 * rng.normal(size=(40, D)), np.zeros((1, D)), 1e6 * rng.normal(size=(2, D))])


def distance_to(z):
    return {"fun": lambda x: 0.5 * np.sum((x - z) ** 2), "jac": lambda x: x - z}


def by_slsqp(z, x, **limits):
    found = optimize.minimize(**distance_to(z), x0=x, method="SLSQP", options={"ftol": 1e-14, "maxiter": 300}, **limits)
    return found.x


def equation(f, jac):
    return {"type": "eq", "fun": f, "jac": jac}


REFERENCES = {
    "box": lambda z: by_slsqp(z, np.zeros(D), bounds=[(-0.5, 1.0)] * D),
    "box of arrays": lambda z: by_slsqp(z, CENTER, bounds=list(zip(LOWER, UPPER, strict=True))),
    "half lines": lambda z: by_slsqp(z, np.zeros(D), bounds=[(None, 0.3)] * D),
    "nonnegative": lambda z: optimize.nnls(np.eye(D), z)[0],
    "simplex": lambda z: by_slsqp(
        z, np.full(D, 0.2), bounds=[(0, None)] * D, constraints=equation(lambda x: x.sum() - 1, lambda x: np.ones(D))
    ),
    "scaled simplex": lambda z: by_slsqp(
        z, np.full(D, 0.5), bounds=[(0, None)] * D, constraints=equation(lambda x: x.sum() - 2.5, lambda x: np.ones(D))
    ),
    "ball": lambda z: by_slsqp(
        z, np.zeros(D), constraints={"type": "ineq", "fun": lambda x: 1.5**2 - x @ x, "jac": lambda x: -2 * x}
    ),
    "ball elsewhere": lambda z: by_slsqp(
        z,
        CENTER,
        constraints={
            "type": "ineq",
            "fun": lambda x: 2.0**2 - (x - CENTER) @ (x - CENTER),
            "jac": lambda x: -2 * (x - CENTER),
        },
    ),
    "subspace": lambda z: z + np.linalg.lstsq(A, b - A @ z, rcond=None)[0],
    "single equation": lambda z: z + np.linalg.lstsq(np.ones((1, D)), 1.0 - z.sum(keepdims=True), rcond=None)[0],
    "l1": lambda z: np.array([soft(value, 0.8) for value in z]),
    "weighted l1": lambda z: np.array([soft(value, w) for value, w in zip(z, WEIGHTS, strict=True)]),
}


def soft(z, w):
    """The minimum of w|x| + (x - z)^2/(2 step) is at 0 or at a stationary point on either side."""
    candidates = [0.0, max(0.0, z - STEP * w), min(0.0, z + STEP * w)]
    return min(candidates, key=lambda x: w * abs(x) + (x - z) ** 2 / (2 * STEP))


@pytest.mark.parametrize("name", REFERENCES)
def test_equals_the_minimiser_found_otherwise(name):
    for z in POINTS[:41]:
        np.testing.assert_allclose(EVERY[name](z, STEP), REFERENCES[name](z), atol=2e-6)


@pytest.mark.parametrize("total", [1e-3, 1.0, 50.0])
def test_simplex_meets_its_optimality_conditions(total):
    """x is the projection if and only if z - x is the same number where x > 0 and no more where x = 0."""
    for d in (1, 2, 30, 400):
        z = rng.normal(size=(20, d)) * rng.choice([1e-3, 1.0, 1e3], size=(20, 1))
        x = prox.simplex(total)(z)
        np.testing.assert_allclose(x.sum(axis=1), total, rtol=1e-11)
        assert (x >= 0).all()
        for away, inner in zip(z - x, x > 0, strict=True):
            scale = 1e-12 * (1 + np.abs(z).max())
            assert np.ptp(away[inner]) <= scale
            assert (away[~inner] <= away[inner].min() + scale).all()


def test_simplex_with_ties_and_far_away():
    np.testing.assert_array_equal(prox.simplex()(np.zeros(4)), np.full(4, 0.25))
    np.testing.assert_array_equal(prox.simplex()(np.array([1e12, 1e12, 0.0])), [0.5, 0.5, 0.0])
    np.testing.assert_array_equal(prox.simplex()(np.array([-1e300, 1e300])), [0.0, 1.0])
    x = prox.simplex()(np.arange(5.0) / 10)
    np.testing.assert_allclose(prox.simplex()(x), x, rtol=1e-15)


points = arrays(np.float64, (2, D), elements=st.floats(-50, 50, allow_subnormal=False))


@every
@given(pair=points, step=st.floats(0.01, 20))
def test_firmly_nonexpansive(name, pair, step):
    z, w = pair
    dJ, dz = EVERY[name](z, step) - EVERY[name](w, step), z - w
    assert dJ @ dJ <= dJ @ dz + 1e-10 * (1 + np.abs(pair).max()) ** 2


@every
def test_a_projection_is_idempotent_and_does_not_look_at_the_step(name):
    one = EVERY[name]
    x = one(POINTS, STEP)
    if one.is_projection:
        np.testing.assert_allclose(one(x, STEP), x, atol=1e-9)
        np.testing.assert_array_equal(one(POINTS, 17.0), x)
        assert one.contains(x, 1e-8).all()
        assert one.contains(x[0], 1e-8) is True
    else:
        assert not np.allclose(one(POINTS, 17.0), x)
        with pytest.raises(da.errors.CapabilityError, match="projection"):
            one.contains(x)


@every
def test_goes_with_its_step(name):
    """The resolvent identity J_a z = J_b(b/a z + (1 - b/a) J_a z)."""
    x = EVERY[name](POINTS[:41], 2.0)
    np.testing.assert_allclose(EVERY[name](0.25 * POINTS[:41] + 0.75 * x, 0.5), x, atol=1e-12)


@every
def test_rows_shapes_and_precision(name):
    one = EVERY[name]
    x = one(POINTS, STEP)
    single = np.stack([one(z, STEP) for z in POINTS])
    if one.rowwise:
        np.testing.assert_array_equal(x, single)
        np.testing.assert_array_equal(one(POINTS[7:9], STEP), x[7:9])
    np.testing.assert_allclose(x, single, rtol=1e-12, atol=1e-12 * 1e6)
    np.testing.assert_allclose(one(POINTS[:42].reshape(2, 21, D), STEP), x[:42].reshape(2, 21, D), atol=1e-12)
    low = one(POINTS[:41].astype(np.float32), STEP)
    assert low.dtype == np.float32
    np.testing.assert_allclose(low, x[:41], atol=3e-5)
    assert one(np.arange(D), STEP).dtype == np.float64
    np.testing.assert_array_equal(one([0, 1, 2, 3, 4], STEP), one(np.arange(5.0), STEP))


@every
def test_arguments_are_left_alone_and_results_are_new(name):
    z = POINTS.copy()
    x = EVERY[name](z, STEP)
    np.testing.assert_array_equal(z, POINTS)
    assert not np.shares_memory(x, z)
    assert x.flags.writeable


@every
def test_reads_well_and_can_be_told_apart(name):
    one = EVERY[name]
    assert repr(one).startswith(type(one).__name__ + "(")
    assert "0x" not in repr(one) + str(one.describe())
    assert len(repr(one)) < 120
    others = [other.describe() for key, other in EVERY.items() if key != name]
    assert one.describe() not in others


def test_reprs():
    assert repr(prox.box(0, [1.0, 2.0])) == "box(lower=0, upper=[1.0, 2.0])"
    assert repr(prox.nonnegative()) == "nonnegative()"
    assert repr(prox.simplex()) == "simplex(total=1)"
    assert repr(prox.box(np.zeros(100), 1)) == "box(lower=array of shape (100,), upper=1)"
    assert (
        repr(prox.product([(2, prox.l1(0.5)), (1, np.minimum)]))
        == "product(blocks=[(2, l1(weight=0.5)), (1, minimum)])"
    )
    assert repr(prox.from_function(soft)) == "from_function(function=soft)"


def test_parameters_are_copied_and_records_are_frozen():
    upper = np.ones(2)
    one = prox.box(0, upper)
    upper[0] = 9.0
    np.testing.assert_array_equal(one(np.full(2, 5.0)), [1.0, 1.0])
    with pytest.raises(AttributeError):
        one.lower = 3.0
    with pytest.raises(ValueError, match="read-only"):
        one.upper[0] = 3.0
    z = rng.normal(size=(3, D))
    for name, one in EVERY.items():
        if not name.startswith("function"):
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(one))(z, STEP), one(z, STEP))


@pytest.mark.parametrize(
    ("one", "d", "diameter"),
    [
        (prox.box(0, 1), 9, 3.0),
        (prox.box([0.0, 0.0], [3.0, 4.0]), 2, 5.0),
        (prox.box(0, np.inf), 2, None),
        (prox.box(LOWER, UPPER), D, None),
        (prox.nonnegative(), 2, None),
        (prox.ball(1.5, CENTER), D, 3.0),
        (prox.simplex(2.0), 3, 2 * np.sqrt(2)),
        (prox.simplex(2.0), 1, 0.0),
        (prox.l1(1.0), 3, None),
        (prox.none(), 3, None),
        (prox.affine_subspace(np.eye(3), 1.0), 3, 0.0),
        (prox.affine_subspace(A, b), D, None),
        (prox.product([(9, prox.box(0, 1)), (4, prox.ball(2.0))]), 13, 5.0),
        (prox.product([(9, prox.box(0, 1)), (1, prox.none())]), 10, None),
        (prox.product([(9, prox.box(0, 1)), (1, np.minimum)]), 10, None),
        (prox.from_function(soft), 3, None),
    ],
    ids=str,
)
def test_diameter(one, d, diameter):
    assert one.diameter(d) == (None if diameter is None else pytest.approx(diameter))
    if diameter and one.is_projection:
        x = one(100 * rng.normal(size=(2000, d)))
        largest = max(np.linalg.norm(x - y, axis=1).max() for y in x)
        assert diameter * 0.5 <= largest <= diameter * (1 + 1e-12)


def test_contains():
    square = prox.box(0, 1)
    assert square.contains([0.5, 1.0]) is True
    assert square.contains([0.5, 1.1]) is False
    np.testing.assert_array_equal(square.contains([[0.5, 1.1], [0.0, 0.0]]), [False, True])
    assert square.contains([0.5, 1.05], tol=0.1) is True
    assert prox.product([(2, square), (1, prox.none())]).contains([0.0, 1.0, 99.0]) is True


def test_equations_that_depend_on_each_other_do_no_harm_and_contradictions_are_told():
    x = prox.affine_subspace(A, b)(POINTS)
    np.testing.assert_allclose(x @ A.T, np.tile(b, (len(x), 1)), atol=1e-8)
    twice = prox.affine_subspace(np.concatenate([A, 1e6 * A]), np.concatenate([b, 1e6 * b]))
    np.testing.assert_allclose(twice(POINTS[:41]), x[:41], atol=1e-7)
    np.testing.assert_array_equal(prox.affine_subspace(np.zeros((1, 2)), 0.0)([3.0, 4.0]), [3.0, 4.0])
    for matrix, right in ((A, b + np.array([0, 0, 1e-4])), (np.zeros((1, 2)), 1.0), ([[1.0], [1.0]], [0.0, 1.0])):
        with pytest.raises(da.errors.ArgumentError, match=r"some x must satisfy .* contradict"):
            prox.affine_subspace(matrix, right)


def test_not_a_number_is_passed_on():
    for name, one in EVERY.items():
        z = np.zeros((2, D))
        z[1] = np.nan
        with np.errstate(invalid="ignore"):
            x = one(z, STEP)
        assert np.isfinite(x[0]).all(), name
        assert np.isnan(x[1]).any() or (name == "box of arrays" and np.isnan(x[1, 0])), name


BAD = {
    "order": (lambda: prox.box(1, 0), ValueError, r"box: lower must be at most upper.*lower = 1.0, upper = 0.0"),
    "no number": (lambda: prox.box(np.inf, np.inf), ValueError, "box: lower must be at most upper"),
    "lengths": (lambda: prox.box([0.0, 0.0], [1.0, 1.0, 1.0]), ValueError, "box: lower and upper must have one length"),
    "nan": (lambda: prox.box([0.0, np.nan], 1.0), ValueError, "box: lower must be numbers"),
    "nan alone": (lambda: prox.box(np.nan, 1.0), ValueError, "box: lower must be numbers"),
    "text": (lambda: prox.box("a", 1), TypeError, "box: lower must be a number or an array of numbers.*'a'"),
    "true": (lambda: prox.box(0, True), TypeError, "box: upper must be a number.*True"),
    "ragged": (lambda: prox.box([[1, 2], [3]], 4), TypeError, "box: lower must be a number"),
    "square": (lambda: prox.box(np.zeros((2, 2)), 1), ValueError, r"box: lower .* shape \(2, 2\)"),
    "empty": (lambda: prox.box([], 1), ValueError, r"shape \(0,\)"),
    "radius": (lambda: prox.ball(-1.0), ValueError, "ball: radius must be non-negative and finite.*-1.0"),
    "radii": (lambda: prox.ball([1.0, 2.0]), TypeError, "ball: radius must be a number"),
    "radius inf": (lambda: prox.ball(np.inf), ValueError, "ball: radius"),
    "center": (lambda: prox.ball(1.0, [0.0, np.inf]), ValueError, "ball: center must be finite"),
    "total": (lambda: prox.simplex(0), ValueError, "simplex: total must be positive and finite. Got 0"),
    "weight": (lambda: prox.l1(-0.1), ValueError, "l1: weight must be non-negative"),
    "weights": (lambda: prox.l1([1.0, -1.0]), ValueError, "l1: weight must be non-negative"),
    "matrix": (
        lambda: prox.affine_subspace(np.ones(3)),
        ValueError,
        r"affine_subspace: A must be an array of shape \(m, d\)",
    ),
    "matrix text": (lambda: prox.affine_subspace([["a"]]), TypeError, "affine_subspace: A must be an array of numbers"),
    "right side": (lambda: prox.affine_subspace(A, b[:2]), ValueError, "b must have length 3.*Got 2"),
    "infinite": (lambda: prox.affine_subspace(A, [0, 0, np.inf]), ValueError, "affine_subspace: b must be finite"),
    "infinite matrix": (lambda: prox.affine_subspace([[np.inf]]), ValueError, "affine_subspace: A must be finite"),
    "blocks": (lambda: prox.product([]), TypeError, "product: blocks must be a list of pairs"),
    "no blocks": (lambda: prox.product(3), TypeError, "product: blocks must be a list of pairs"),
    "pair": (lambda: prox.product([prox.box(0, 1)]), TypeError, "product: each block must be a pair"),
    "block prox": (lambda: prox.product([(2, 3)]), TypeError, "product: each block must be a pair"),
    "block size": (lambda: prox.product([(0, prox.none())]), ValueError, "size of a block must be at least 1"),
    "block sizes": (lambda: prox.product([(3, prox.box([0, 0], 1))]), ValueError, "size 3 for box"),
    "function": (lambda: prox.from_function(3), TypeError, r"from_function: function must be a function \(z, step\)"),
    "width": (lambda: prox.box(LOWER, UPPER)(np.ones(4)), ValueError, r"must have shape \(..., 5\). Got shape \(4,\)"),
    "width one": (lambda: prox.l1(WEIGHTS)(np.ones((3, 1))), ValueError, r"shape \(..., 5\)"),
    "product width": (lambda: EVERY["product"](np.ones(4)), ValueError, r"shape \(..., 5\)"),
    "scalar": (lambda: prox.simplex()(1.0), ValueError, r"must have shape \(..., d\). Got shape \(\)"),
    "wrong shape": (
        lambda: prox.from_function(lambda z, step: z[:2])(np.ones((2, 3))),
        da.errors.OracleError,
        r"shape of z. Got shape \(2,\), dtype float64 for z of shape \(3,\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_messages(name):
    call, error, text = BAD[name]
    with pytest.raises(error, match=text) as caught:
        call()
    assert isinstance(caught.value, da.errors.DualAnchorError)
    assert ". Got " in str(caught.value)


BOUNDED = {
    "box": (prox.box(-1, [2.0, 0.5, 1.0, 3.0, 0.0]), D),
    "ball": (prox.ball(1.5, CENTER), D),
    "simplex": (prox.simplex(2.5), D),
    "point": (prox.affine_subspace(np.eye(D), np.arange(D)), D),
    "product": (prox.product([(2, prox.simplex()), (3, prox.product([(1, prox.box(0, 2)), (2, prox.ball(1.0))]))]), D),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_support_function_is_the_largest_product_over_the_set(name):
    one, d = BOUNDED[name]
    y = rng.normal(size=(7, d))
    farthest = one(1e9 * y)  # the projection of a point far away in the direction y
    value = one.support(y)
    assert value.shape == (7,)
    np.testing.assert_allclose(value, np.einsum("ij,ij->i", y, farthest), rtol=1e-6, atol=1e-6)
    inside = one(3 * rng.normal(size=(500, d)))
    assert (y @ inside.T <= value[:, None] + 1e-9).all()
    assert one.support(y[0]) == pytest.approx(value[0], rel=1e-12)


@pytest.mark.parametrize(
    "one",
    [
        prox.nonnegative(),
        prox.box(0, np.inf),
        prox.none(),
        prox.l1(1.0),
        prox.affine_subspace(A, b),
        prox.from_function(soft),
        prox.product([(D, np.minimum)]),
        prox.product([(1, prox.box(0, 1)), (D - 1, prox.none())]),
    ],
    ids=str,
)
def test_no_support_function_without_a_bounded_set(one):
    with pytest.raises(da.errors.CapabilityError, match="support function needs a bounded set"):
        one.support(np.ones(D))


def test_blocks_of_nested_products():
    inner = prox.product([(1, prox.box(0, 1)), (2, np.minimum)])
    blocks = prox.product([(2, prox.simplex()), (3, inner)]).blocks_of(5)
    assert [(part.start, part.stop) for part, _ in blocks] == [(0, 2), (2, 3), (3, 5)]
    assert [type(one).__name__ for _, one in blocks] == ["simplex", "box", "ufunc"]
    ((part, one),) = prox.ball(1.0).blocks_of(4)
    assert (part, type(one)) == (slice(0, 4), prox.ball)


@pytest.mark.parametrize("name", EVERY)
def test_rows_may_have_steps_of_their_own(name):
    z, steps = rng.normal(size=(3, D)), np.array([[0.1], [0.5], [2.0]])
    together = EVERY[name](z, steps)
    for row, step in enumerate(steps[:, 0].tolist()):
        np.testing.assert_allclose(together[row], EVERY[name](z[row], step), rtol=1e-12, atol=1e-14)
