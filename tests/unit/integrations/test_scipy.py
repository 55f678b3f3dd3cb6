"""`da.scipy.root` has the call and the result of `scipy.optimize.root`."""

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

import dualanchor as da


def lines(x, slope, rng):
    return slope * (x - np.array([1.0, 2.0])) + 0.1 * rng.normal(size=2)


def test_result_is_that_of_root_with_the_names_of_scipy():
    found = da.scipy.root(lines, [0.0, 0.0], (2.0,), options={"maxfev": 3000}, seed=1)
    assert isinstance(found, OptimizeResult)
    assert found.success
    assert found.nfev <= 3000
    assert np.abs(found.x - [1, 2]).max() < 0.05
    assert found.fun <= found.upper == found.result.certificate.upper
    same = da.root(da.each(lambda x, rng: lines(x, 2.0, rng)), [0.0, 0.0], budget=3000, seed=1)
    np.testing.assert_array_equal(found.x, same.x)
    assert "success: True" in repr(found)


def test_function_with_randomness_of_its_own():
    own = np.random.default_rng(3)
    found = da.scipy.root(lambda x: x - 1 + 0.1 * own.normal(size=2), [0.0, 0.0], options={"maxfev": 3000})
    assert found.success
    assert np.abs(found.x - 1).max() < 0.05


def test_tol_is_eps_and_maxfev_its_limit():
    found = da.scipy.root(lines, [0.0, 0.0], (1.0,), tol=0.05, L=1.0)
    assert found.success
    assert found.upper <= 0.05
    hopeless = da.scipy.root(lines, [0.0, 0.0], (1.0,), tol=1e-6, options={"maxfev": 2000})
    assert not hopeless.success
    assert hopeless.nfev <= 2000


def test_no_certificate_no_bound():
    found = da.scipy.root(lines, [0.0, 0.0], (1.0,), options={"maxfev": 500}, certificate=False)
    assert found.upper is None


def test_functions_without_a_signature_are_called_with_x_alone():
    assert da.scipy.root(np.tanh, [0.5], options={"maxfev": 200}).success


def test_a_jacobian_is_refused_with_a_remedy():
    with pytest.raises(TypeError, match=r"jac is not supported.*Got a jac\. Leave it out") as refused:
        da.scipy.root(lines, [0.0, 0.0], (1.0,), jac=lambda x: np.eye(2))
    assert len(refused.value.parts) == 3
    assert da.scipy.root(lines, [0.0, 0.0], (1.0,), jac=None, options={"maxfev": 500}).nfev <= 500


@pytest.mark.parametrize(("keywords", "message"), [({"options": {"xtol": 1e-3}}, "maxfev alone"), ({"Lx": 1}, "Lx")])
def test_other_options_are_refused(keywords, message):
    with pytest.raises((da.errors.ArgumentError, TypeError), match=message):
        da.scipy.root(lines, [0.0, 0.0], (1.0,), **keywords)
    with pytest.raises(TypeError, match=r"scipy\.root: fun"):
        da.scipy.root(3, [0.0])
