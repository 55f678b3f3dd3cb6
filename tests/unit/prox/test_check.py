"""What `check_prox` lets pass and what it turns down."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor import prox

K = np.array([[0.0, 3.0], [-3.0, 0.0]])

RIGHT = {
    "box": prox.box(0, 1),
    "ball": prox.ball(2.0),
    "simplex": prox.simplex(),
    "l1": prox.l1(3.0),
    "none": prox.none(),
    "subspace": prox.affine_subspace([[1.0, 1.0]], 2.0),
    "product": prox.product([(1, prox.l1(2.0)), (1, prox.nonnegative())]),
    "a plain function": lambda z, step: z / (1 + step),
    "skew": lambda z, step: np.linalg.solve(np.eye(2) + step * K, z.T).T,
    "computed to five digits": lambda z, step: np.round(np.clip(z, 0, 1), 5),
}
WRONG = {
    "gradient step": (lambda z, step: z - step * 5 * z, "not firmly nonexpansive"),
    "reflection": (lambda z, step: 2 * np.clip(z, 0, 1) - z, "not firmly nonexpansive"),
    "rotation": (lambda z, step: z @ K / 3, "not firmly nonexpansive"),
    "hard threshold": (lambda z, step: np.where(np.abs(z) > 1, z, 0.0), "not firmly nonexpansive"),
    "expansion": (lambda z, step: 1.1 * z, "not firmly nonexpansive"),
    "nonconvex set": (lambda z, step: np.where(z >= 0, 1.0, -1.0), "not firmly nonexpansive"),
    "relaxed projection": (
        prox.from_function(lambda z, step: (z + np.clip(z, 0, 1)) / 2, is_projection=True),
        "not a projection",
    ),
    "a penalty called projection": (
        prox.from_function(lambda z, step: prox.l1(1.0)(z, step), is_projection=True),
        "not a projection",
    ),
    "threshold without step": (lambda z, step: prox.l1(1.0)(z, 1.0), "does not depend on its step as it must"),
    "threshold with its square": (lambda z, step: prox.l1(1.0)(z, step**2), "does not depend on its step as it must"),
    "one point only": (lambda z, step: np.clip(z[0], 0, 1), "does not return points"),
    "nan": (lambda z, step: z * np.nan, "does not return numbers"),
    "integers": (lambda z, step: np.clip(z, 0, 1).astype(int), "does not return points"),
    "in place": (lambda z, step: np.clip(z, 0, 1, out=z), "changes the point"),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(
    "points", [np.zeros(2), np.array([1e4, -2e4]), np.array([[0.0, 1.0], [5.0, -5.0], [0.1, 0.2]])]
)
@pytest.mark.parametrize("step", [0.05, 0.9, 30.0])
def test_lets_pass(name, points, step):
    prox.check_prox(RIGHT[name], points, step)


@pytest.mark.parametrize("name", WRONG)
def test_turns_down(name):
    one, text = WRONG[name]
    with pytest.raises(da.errors.ArgumentError, match=f"the prox given.* {text}.* Got ") as caught:
        prox.check_prox(one, np.array([0.5, -3.0]), 0.6)
    assert str(caught.value).startswith("the prox given ")


def test_precision_points_and_tolerance():
    prox.check_prox(prox.simplex(), np.ones(50, np.float32), 0.3)
    prox.check_prox(prox.box(0, 1), [1, 2, 3])
    with pytest.raises(da.errors.ArgumentError, match="check_prox: points"):
        prox.check_prox(prox.box(0, 1), np.zeros((2, 2, 2)))
    rough = prox.from_function(lambda z, step: np.round(np.clip(z, 0, 1), 2), is_projection=True)
    prox.check_prox(rough, np.array([0.5, -3.0]), tol=0.05)


def test_the_points_around_a_single_one_are_always_the_same():
    asked = []

    def watched(z, step):
        asked.append(z.copy())
        return np.clip(z, 0, 1)

    for _ in range(2):
        prox.check_prox(watched, np.array([0.5, -3.0]))
    half = len(asked) // 2
    for one, other in zip(asked[:half], asked[half:], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(asked[0][0], [0.5, -3.0])
