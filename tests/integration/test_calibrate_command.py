"""`dualanchor calibrate` as a user and as a program sees it."""

import json

import pytest
from click.testing import CliRunner

import dualanchor as da
from dualanchor.cli.app import app

OWN = """
import numpy as np
import dualanchor as da

SLOPES = np.array([1.0, 1.0, -0.3])


def mine(sigma=0.1):
    sampler = da.Sampler(lambda x, n, rng: SLOPES * x - 1 + sigma * rng.normal(size=(n, 3)).mean(axis=0))
    return da.Problem(sampler, x0=np.zeros(3))
"""


def run(*words, code=0):
    result = CliRunner().invoke(app, ["calibrate", *(str(word) for word in words)])
    assert result.exit_code == code, result.output
    return result


def test_it_prints_what_the_library_says():
    text = run("affine", "-o", "rotation=1", "-n", 500, "--seed", 2).stdout
    assert text == repr(da.calibrate(da.problems.affine(rotation=1), samples=500, seed=2)) + "\n"


def test_json_has_the_library_s_numbers():
    found = json.loads(run("finite-sum-cocoercive", "--samples", 2000, "--json").stdout)
    expected = da.calibrate(da.problems.finite_sum_cocoercive())
    assert found == {"problem": "finite-sum-cocoercive", **expected.to_dict()}


def test_a_problem_of_one_s_own_is_calibrated(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    text = run(f"{tmp_path / 'own.py'}:mine", "-o", "sigma=0.2").stdout
    assert "not monotone along" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("affine", "--samples", 10), "samples must be at least 16"),
        (("affine", "--radius", -1), "radius must be positive"),
        (("affin",), "Did you mean affine"),
        (("affine", "-o", "turn=1"), "rotation"),
    ],
)
def test_bad_input_has_a_message_and_a_code(words, message):
    assert message in run(*words, code=2).stderr
