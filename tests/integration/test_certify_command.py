"""`dualanchor certify` as a user and as a program sees it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import dualanchor as da
from dualanchor.cli.app import app


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def data(*words):
    return json.loads(run(*words, "--json").stdout)


def test_numbers_are_those_of_the_library(tmp_path):
    saved = tmp_path / "run.npz"
    run("solve", "affine", "-o", "dimension=4", "--budget", 300, "--seed", 3, "--save", saved)
    words = [
        "certify",
        "affine",
        "-o",
        "dimension=4",
        "--point",
        saved,
        "--samples",
        500,
        "--confidence",
        0.9,
        "--seed",
        8,
    ]
    problem = da.problems.affine(dimension=4)
    expected = da.certify(problem, da.Result.load(saved), samples=500, confidence=0.9, seed=8)
    out = data(*words)
    assert out.pop("problem") == "affine"
    assert out.pop("seed") == 8
    assert out.pop("claim") == expected.text
    assert out == json.loads(json.dumps(expected.to_dict()))
    assert (out["samples"], out["groups"], out["confidence"]) == (500, 250, 0.9)
    assert run(*words).output == repr(expected) + "\n"


def test_the_start_is_the_default_and_replications_are_rows(tmp_path):
    problem = da.problems.affine()
    assert data("certify", "affine", "--samples", 256)["upper"] == da.certify(problem, samples=256).upper
    saved = tmp_path / "runs.npz"
    run("solve", "affine", "--budget", 300, "--reps", 3, "--save", saved)
    assert len(data("certify", "affine", "--samples", 256, "--point", saved)["upper"]) == 3


def test_points_from_an_array_and_problems_from_a_file(tmp_path):
    file, point = tmp_path / "mine.py", tmp_path / "x.npy"
    file.write_text(
        "import numpy as np, dualanchor as da\n"
        "def problem(sigma=0.0):\n"
        "    return da.Problem(da.AdditiveNoise(lambda x: 2 * x, sigma), np.ones(2), name='mine',"
        " constants=da.Constants(sigma=sigma))\n"
    )
    np.save(point, np.array([3.0, 4.0]))
    out = data("certify", f"{file}:problem", "--point", point, "--samples", 64)
    assert out["upper"] == pytest.approx(10.0)
    words = ["certify", f"{file}:problem", "-o", "sigma=0.5", "--point", point, "--samples", 64]
    assert data(*words, "--rule", "any-distribution")["assumed_sigma"] == 0.5
    assert data(*words, "--rule", "sub-gaussian", "--sigma", 2)["assumed_sigma"] == 2.0


def test_bad_input_is_a_message_and_code_2(tmp_path):
    saved = tmp_path / "run.npz"
    run("solve", "affine", "-o", "dimension=4", "--budget", 300, "--save", saved)
    broken, text = tmp_path / "broken.npy", tmp_path / "words.npy"
    broken.write_bytes(b"no array")
    np.save(text, np.array(["a", "b"]))
    cases = {
        ("affine", "--samples", 15): "samples must be at least 16",
        ("affine", "--samples", 64, "--confidence", 95): "strictly between 0 and 1",
        ("affine", "--samples", 64, "--rule", "mim"): "Did you mean min",
        ("affin", "--samples", 64): "affine",
        ("affine", "--samples", 64, "--point", saved): "--point must be a result of the problem",
        ("affine", "--samples", 64, "--point", broken): "--point needs an array of numbers",
        ("affine", "--samples", 64, "--point", text): "x must be an array of real numbers",
        ("affine", "--samples", 64, "--point", tmp_path / "none.npy"): "none.npy",
        ("affine", "--samples", 64, "--point", tmp_path / "none.npz"): "none.npz",
        ("affine",): "--samples",
    }
    for words, message in cases.items():
        result = run("certify", *words, code=2)
        assert message in result.output
        assert "Traceback" not in result.output
