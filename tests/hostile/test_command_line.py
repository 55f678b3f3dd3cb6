"""Absurd command lines and failing user code: a message and a documented exit code, never a traceback or a hang."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from tests.hostile.mutate import choose

from dualanchor.cli.app import app

HUGE = ["9223372036854775807", "9223372036854775808", "1" + "0" * 30, "1" + "0" * 5000]
COUNTS = ["1", "2", "3", "5", "17"]
NO_COUNTS = ["0", "-1", "1e3", "1.5", "", "x", "nan", *HUGE]
NUMBERS = ["1", "0.5", "0.1", "2", "0.9"]
EXTREMES = ["0", "1e-300", "1e300", "1e154", "1e-154", "5e-324", "1.7e308", "0.9999999999999999", "1.0000000001"]
NO_NUMBERS = [*EXTREMES, "-1", "nan", "inf", "-inf", "1e400", "", "x", "1_0", "\u0663"]
WORDS = [
    "",
    "x",
    "affine",
    "s-dual-ohm",
    "\r\n",
    "é",
    "--",
    "-",
    ".",
    "/",
    "../..",
    "a=b",
    "%s",
    "{}",
    "[bold]",
    "\x1b[31m",
]
PROBLEMS = [
    "affine",
    "huber-minimax",
    "worst-case-nonexpansive",
    "finite-sum-cocoercive",
    "mine.py:blind",
    "mine.py:make",
]
NO_PROBLEMS = [
    *WORDS,
    "mine.py",
    "mine.py:",
    ":x",
    "mine.py:no",
    "none.py:x",
    "broken.py:x",
    "mine.py:sample",
    "mine.py:quits",
]
VALUES = [*COUNTS, *NUMBERS, "Tapered(5)", "PAGE(1,2)", "Growing(3)"]
NO_VALUES = [*NO_COUNTS, *NO_NUMBERS, *WORDS, "true", "none", "[1,2]", "1,2", ",", "Tapered()", "Growing(x)", "PAGE("]
METHODS = [
    "s-dual-ohm",
    "dual-ohm",
    "sgda",
    "seg",
    "s-ohm",
    "rain",
    "halpern-page",
    "auto",
    "averaged",
    "restarted-dual-ohm",
]
PARAMETERS = ["step_size", "batch_size", "horizon", "step-size"]
OPTIONS = ["dimension", "sigma", "rotation", "components", "L", "mu", "D", "delta", "rank"]

MINE = """
import sys
import numpy as np, dualanchor as da

def sample(x, n, rng):
    print("printed by the sampler")
    return x + 0.1 * rng.normal(size=x.shape) / n**0.5

blind = da.Problem(da.Sampler(sample), np.ones(2), constants=da.Constants(L=1.0))

def make(dimension=2, sigma=0.1):
    return da.Problem(da.AdditiveNoise(lambda x: x, sigma), np.ones(dimension), constants=da.Constants(L=1.0))

def quits():
    sys.exit(0)
"""


def pick(rng, usual, strange=WORDS):
    """One of the usual values, and now and then a strange one."""
    return choose(rng, strange if rng.random() < 0.12 else usual)


def pairs(rng, flag, names):
    return [flag, f"{pick(rng, names)}={pick(rng, VALUES, NO_VALUES)}"] if rng.random() < 0.3 else []


def some(rng, **options):
    """Some of the options, each with its usual and strange values, or as a flag."""
    words = []
    for name, values in options.items():
        if rng.random() < 0.25:
            flag = f"-{name}" if name in "mrs" else f"--{name.replace('_', '-')}"
            words += [flag] if values is None else [flag, pick(rng, *values)]
    return words


COUNT, NUMBER = (COUNTS, NO_COUNTS), (NUMBERS, NO_NUMBERS)


def problem(rng):
    return [pick(rng, PROBLEMS, NO_PROBLEMS), *pairs(rng, "-o", OPTIONS)]


def solve(rng):
    ends = (["-b", pick(rng, *COUNT), "--steps", "3"], ["--steps", pick(rng, *COUNT), "--wall-time", "0.05"])
    paths = {
        "save": (["run.npz"],),
        "plot": (["x.png"], ["x", ".png", "/"]),
        "checkpoint": (["c.npz"], ["garbage", "/", ""]),
    }
    words = some(rng, m=(METHODS,), r=COUNT, s=COUNT, target=NUMBER, no_check=None, json=None, **paths)
    end = ["-b", choose(rng, COUNTS)] if rng.random() < 0.7 else choose(rng, ends)
    return ["solve", *problem(rng), *end, *pairs(rng, "-p", PARAMETERS), *words]


def plan(rng):
    needed = [word for name in ("--D", "--L", "--sigma") for word in (name, pick(rng, *NUMBER))]
    end = choose(rng, [["--eps", pick(rng, *NUMBER)], ["-b", pick(rng, *COUNT)]])
    more = some(rng, M=NUMBER, mu=NUMBER, step_size=NUMBER, L_mean=NUMBER, affine=None, no_a2=None)
    more += some(rng, prox=None, confidence=NUMBER)
    if rng.random() < 0.1:
        end = ["--round-variance", pick(rng, *NUMBER)]
    words = some(rng, workers=COUNT, sample_cost=NUMBER, batches=(["tapered", "constant"],), json=None)
    words += some(rng, latency=NUMBER) if "--sample-cost" in words else []
    return ["plan", *needed, *end, *more, *words, *some(rng, bound=(["sharp", "paper"],))]


def calibrate(rng):
    samples = pick(rng, ["64", "100"], [*COUNTS, "-1", "x"])
    return ["calibrate", *problem(rng), "-n", samples, *some(rng, radius=NUMBER, confidence=NUMBER, s=COUNT, json=None)]


def certify(rng):
    points = (["run.npz", "point.npy"], ["garbage", "garbage.npy", "/dev/full", "/dev/zero", "fifo", *WORDS])
    words = some(rng, confidence=NUMBER, sigma=NUMBER, s=COUNT, json=None, point=points)
    words += some(rng, rule=(["min", "any-distribution", "sub-gaussian"],))
    return ["certify", *problem(rng), "-n", pick(rng, ["8", "64"], [*COUNTS, "-1", "x"]), *words]


def compare(rng):
    methods = pick(rng, ["sgda", "sgda,seg", "s-dual-ohm"], ["x", "", ",", "sgda,sgda"])
    words = some(
        rng, tune_seeds=(["same", "disjoint"],), fresh=None, json=None, out=(["out"], ["garbage", "/dev/null"])
    )
    numbers = ["-b", pick(rng, ["5", "20"], ["0", "x", "-1"]), "--seeds", pick(rng, ["1", "2"], NO_COUNTS)]
    return ["compare", *problem(rng), *numbers, "--jobs", "1", "--methods", methods, *words]


def reproduce(rng):
    panel = pick(rng, ["tiny.toml"], ["x", "", "garbage", "none.toml", "garbage.toml", "/dev/zero.toml", "."])
    words = some(rng, json=None, quick=None, out=(["out"], ["garbage"]))
    return ["reproduce", panel, "--seeds", pick(rng, ["1", "2"], NO_COUNTS), "--jobs", "1", *words]


def verify(rng):
    only = pick(rng, ["lemma-4.2", "lemma-a.1", "LEMMA-A.1"], WORDS[1:])
    return ["verify", "--quick", "--no-pep", "--only", only, *some(rng, seed=COUNT, json=None, out=(["out"],))]


def others(rng):
    words = [choose(rng, ["methods", "problems", "report", "bench", "x", "--version", "--help", "solve", ""])]
    if words == ["bench"]:
        return [*words, "--only", choose(rng, WORDS)]
    return [*words, *(choose(rng, [*WORDS, "out", "--json", "--help"]) for _ in range(rng.integers(3)))]


COMMANDS = (*[solve] * 6, *[plan] * 4, calibrate, certify, certify, compare, reproduce, verify, others)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with all the files that the command lines name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("def f(:\n")
    for name in ("garbage", "garbage.npy", "garbage.toml", "garbage.npz"):
        (tmp_path / name).write_bytes(b"\x93NUMPY\x00garbage\xff")
    (tmp_path / "tiny.toml").write_text(
        'id = "tiny"\nbudget = 9\nproblem = "affine"\n[methods.sgda.grid]\nstep_size = [0.1]\n'
    )
    os.mkfifo(tmp_path / "fifo")
    np.save(tmp_path / "point.npy", np.ones(2))
    run("solve", "mine.py:make", "-b", "9", "-m", "sgda", "-p", "step_size=0.1", "--save", "run.npz")
    return tmp_path


def run(*words):
    """The outcome of a command line; a traceback fails."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"a traceback: dualanchor {words}") from done.exception
    return done


@pytest.mark.parametrize("part", range(10))
def test_command_lines(part, cases, no_hang, folder):
    for number in cases(4, 100):
        rng = np.random.default_rng([part, number])
        words = choose(rng, COMMANDS)(rng)
        with no_hang():
            done = run(*words)
        assert done.exit_code in ((0, 1, 2) if words[0] == "verify" else (0, 2)), (part, number, words)
        assert done.exit_code == 0 or done.stderr, words
        if done.exit_code == 0 and "--json" in words and "--help" not in words:
            json.loads(done.stdout)


HEAD = "import sys, dualanchor as da"
MADE = "da.Problem(da.Sampler(F), [1.0], constants=da.Constants(L=1.0))\n"
FAILING = {
    "syntax": ("x = (\n", 1, "SyntaxError"),
    "null": ("x = 1\0\n", None, "null bytes"),
    "import": ("import no_such_module_at_all\n", 1, "ModuleNotFoundError"),
    "error": ("x = 1\nx = x / 0\n", 2, "ZeroDivisionError"),
    "exit": ("import sys\nsys.exit(0)\n", 2, "SystemExit: 0"),
    "unprintable": (
        "class E(Exception):\n    def __str__(self): return 1 / 0\n\nraise E\n",
        4,
        "exception str() failed",
    ),
    "factory": ("def problem():\n    return [][1]\n", 2, "IndexError"),
    "type error in a factory": ("def problem():\n    return 1 + 'x'\n", 2, "TypeError: unsupported operand"),
    "factory that exits": ("def problem():\n    raise SystemExit\n", 2, "SystemExit"),
    "library error": ("import dualanchor as da\nproblem = da.Problem(1, [1])\n", 2, "oracle must be an Oracle"),
    "library error in a factory": (
        "import dualanchor as da\ndef problem():\n    return da.Problem(1, [1])\n",
        3,
        "oracle must be an Oracle",
    ),
    "sampler": (f"{HEAD}\ndef F(x, n, rng):\n    return x[9]\nproblem = {MADE}", 3, "IndexError"),
    "sampler that exits": (f"{HEAD}\ndef F(x, n, rng):\n    sys.exit(0)\nproblem = {MADE}", 3, "SystemExit: 0"),
    "problem of its own": (
        f"{HEAD}\nF = lambda x, n, rng: x\n"
        "class P(da.Problem):\n    def instance(self, streams):\n        return {}[0]\n"
        f"problem = {MADE.replace('da.Problem', 'P')}",
        5,
        "KeyError: 0",
    ),
}


@pytest.mark.parametrize("case", FAILING)
@pytest.mark.parametrize(
    "command", [["solve", "-b", "99"], ["certify", "-n", "64"], ["calibrate"], ["compare", "-b", "9", "--jobs", "1"]]
)
def test_failing_user_code_is_shown_with_its_line(command, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, line, text = FAILING[case]
    (tmp_path / "mine.py").write_text(code)
    done = run(command[0], "mine.py:problem", *command[1:])
    said = " ".join(done.stderr.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert text in said
    assert f"mine.py{'' if line is None else f', line {line}'}" in said


@pytest.mark.parametrize("case", ["exit", "error"])
def test_failing_user_code_in_a_worker(case, tmp_path):
    code = {"exit": "raise SystemExit(0)", "error": "return {}[0]"}[case]
    (tmp_path / "mine.py").write_text(
        f"import os; {HEAD}; here = os.getpid()\n"
        f"class P(da.Problem):\n    def instance(self, streams):\n        if os.getpid() != here: {code}\n"
        "        return super().instance(streams)\n"
        "problem = P(da.AdditiveNoise(lambda x: x, 0.1), [1.0], constants=da.Constants(L=1.0))\n"
    )
    words = f"compare {tmp_path}/mine.py:problem -b 9 --methods sgda,seg --jobs 2 --out {tmp_path}/out".split()
    done = run(*words)
    assert done.exit_code == 2
    assert f"{tmp_path}/mine.py, line 4" in done.stderr


def test_an_error_in_a_file_beside_the_users_is_found(tmp_path):
    (tmp_path / "mine.py").write_text("import beside_mine\n")
    (tmp_path / "beside_mine.py").write_text("\n\nx = (\n")
    assert f"{tmp_path}/beside_mine.py, line 3" in run("solve", f"{tmp_path}/mine.py:problem", "-b", "9").stderr


LOUD = """
import os, numpy as np, dualanchor as da
print("on loading")
def sample(x, n, rng):
    print("in the sampler")
    os.write(1, b"to the descriptor")
    return x + 0.1 * rng.normal(size=2) / n**0.5
problem = da.Problem(da.Sampler(sample), np.ones(2), constants=da.Constants(L=1.0))
"""


def process(*words, **options):
    """A command line as a process of its own."""
    command = [sys.executable, "-m", "dualanchor", *map(str, words)]
    return subprocess.run(command, capture_output="stdout" not in options, text=True, timeout=300, **options)


@pytest.mark.parametrize("words", [["solve", "-b", 200], ["compare", "-b", 9, "--seeds", 1]])
def test_what_user_code_prints_goes_to_standard_error(words, tmp_path):
    (tmp_path / "mine.py").write_text(LOUD)
    words = [
        words[0],
        "mine.py:problem",
        *words[1:],
        "--json",
        *(["--methods", "sgda"] if words[0] == "compare" else []),
    ]
    done = process(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    for text in ("on loading", "in the sampler", "to the descriptor"):
        assert text in done.stderr


def test_output_that_nobody_takes(tmp_path):
    for words in (["--help"], ["problems"], ["solve", "affine", "-b", "99", "--json", "--save", tmp_path / "run.npz"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = process(*words, stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, ""), words
    assert (tmp_path / "run.npz").exists()
    with open("/dev/full", "w") as full:
        done = process("problems", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "Error: [Errno 28] No space left on device\n"
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        shell = ["/bin/sh", "-c", f'"$0" -m dualanchor problems {closed}', sys.executable]
        done = subprocess.run(shell, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == (2 if closed.startswith(">") else 0)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("place", ["paper.panels.panels_for", "studies.study.run_study", "report.write_report"])
def test_ctrl_c_in_any_part_of_reproduce(place, folder, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"dualanchor.{place}", interrupted)
    done = run("reproduce", "tiny.toml", "--seeds", "1", "--jobs", "1", "--out", "out")
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr.endswith("Interrupted.\n")


def test_ctrl_c_before_a_command_begins(tmp_path):
    lines = ["import os, signal", "signal.signal(signal.SIGINT, signal.default_int_handler)"]  # ignored in background
    (tmp_path / "rich.py").write_text("\n".join([*lines, "os.kill(os.getpid(), signal.SIGINT)\n"]))
    done = process("problems", env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
