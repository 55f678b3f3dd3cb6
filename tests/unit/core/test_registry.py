"""Methods and problems by name."""

import pytest

import dualanchor as da
from dualanchor.core.errors import unknown_name
from dualanchor.methods import make as make_method
from dualanchor.problems import make as make_problem


def test_lists_are_sorted_and_complete():
    methods, problems = da.list_methods(), da.list_problems()
    assert [entry.id for entry in methods] == sorted(entry.id for entry in methods)
    assert {"s-dual-ohm", "s-ohm", "sgda", "seg", "rain", "halpern-page", "halpern-vr-finite"} <= {
        m.id for m in methods
    }
    assert {"affine", "finite-sum-cocoercive", "huber-minimax", "worst-case-nonexpansive"} <= {p.id for p in problems}
    for entry in methods + problems:
        assert entry.cls.id == entry.id
        assert entry.title == entry.cls.title
        assert entry.cls.__doc__
    assert all(issubclass(entry.cls, da.Method) for entry in methods)
    assert all(issubclass(entry.cls, da.Problem) for entry in problems)


@pytest.mark.parametrize(
    ("call", "close"),
    [
        (lambda: da.solve(da.problems.affine(dimension=4), "s-dual-omh", budget=9), "s-dual-ohm"),
        (lambda: da.solve(da.problems.affine(dimension=4), "SGDA", budget=9), "sgda"),
        (lambda: make_method("s-dual-oh", da.problems.affine(dimension=4), 9, {}), "s-dual-ohm"),
        (lambda: make_method("sgda", da.problems.affine(dimension=4), 9, {"stepsize": 1.0}), "step_size"),
        (lambda: make_problem("huber_minimax", {}), "huber-minimax"),
        (lambda: make_problem("affine", {"dimensions": 3}), "dimension"),
    ],
)
def test_a_wrong_name_is_answered_with_the_close_ones(call, close):
    with pytest.raises(da.errors.UnknownNameError, match=f"Did you mean .*{close}"):
        call()


def test_a_name_like_no_other_is_answered_with_all():
    error = unknown_name("method", "zzz", ["b", "a"])
    assert "Choose one of a, b" in str(error)
    assert "'zzz'" in str(error)


def test_options_are_handed_on():
    assert make_problem("affine", {"dimension": 5}).dimension == 5
    method = make_method("rain", da.problems.affine(dimension=4), None, {"growth": 0.5})
    assert method.growth == 0.5


def test_public_names_are_there_and_no_others():
    for name in da.__all__:
        assert getattr(da, name) is not None
    assert set(da.__all__) <= set(dir(da))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        da.nothing  # noqa: B018
