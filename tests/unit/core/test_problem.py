"""Problems and what is known of them."""

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.problem import as_point


def test_a_problem_of_ones_own():
    oracle = da.AdditiveNoise(lambda x: 2 * x, sigma=0.1)
    problem = da.Problem(oracle, [1, 2, 3], constants=da.Constants(L=2.0, sigma=0.1), root=[0, 0, 0], name="mine")
    assert (problem.name, problem.dimension, problem.components) == ("mine", 3, None)
    assert problem.step_size == 0.5
    assert repr(problem) == "Problem('mine', d=3, L=2, mu=0, sigma=0.1)"
    instance = problem.instance(da.Streams(0, np.arange(2)))
    np.testing.assert_array_equal(instance.x0, [[1, 2, 3]] * 2)
    np.testing.assert_array_equal(instance.root, np.zeros((2, 3)))
    assert instance.oracle is oracle
    assert da.Problem(oracle, np.ones(2), step_size=0.7).step_size == 0.7
    assert da.Problem(oracle, np.ones(2)).step_size is None
    assert da.Problem(da.FiniteSum(lambda x, i: np.tile(x, (i.size, 1)), 7), np.ones(2)).components == 7


def test_the_start_of_a_problem_is_not_the_callers_array_in_a_run():
    x0 = np.ones(3)
    problem = da.Problem(da.AdditiveNoise(lambda x: x, 0.0), x0, constants=da.Constants(L=1.0))
    instance = problem.instance(da.Streams(0, np.arange(1)))
    instance.x0[...] = 9
    np.testing.assert_array_equal(x0, 1)


def test_points_are_made_floats_and_keep_their_precision():
    assert as_point([1, 2], "x").dtype == np.float64
    assert as_point(np.ones(2, np.float32), "x").dtype == np.float32
    assert as_point([True, False], "x").dtype == np.float64
    assert as_point(np.ones((3, 2)), "x", 2, 3).shape == (3, 2)
    assert as_point(np.ones(2), "x", 2, 3).shape == (2,)


@pytest.mark.parametrize("entry", da.list_problems(), ids=lambda entry: entry.id)
def test_a_named_problem_describes_itself(entry):
    problem = entry.cls()
    assert problem.describe() == {"name": entry.id, **problem.options()}
    assert set(problem.options()) == set(entry.cls.option_names())
    assert repr(problem).startswith(f"{entry.cls.__name__}('{entry.id}', d={problem.dimension}")
    assert problem.step_size > 0
    assert problem.constants.L > 0
    assert entry.cls() == problem


@pytest.mark.parametrize("name", ["L", "M", "sigma", "D", "mu"])
@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan])
def test_constants_must_make_sense(name, value):
    with pytest.raises(da.errors.ArgumentError, match=f"Constants: {name} must be"):
        da.Constants(**{name: value})
    if name in ("L", "M"):
        with pytest.raises(da.errors.ArgumentError, match="positive"):
            da.Constants(**{name: 0.0})
    else:
        da.Constants(**{name: 0.0})


def test_a_named_problem_without_a_class_of_its_own_cannot_be_made():
    from dualanchor.problems.named import NamedProblem

    with pytest.raises(TypeError):
        NamedProblem()
