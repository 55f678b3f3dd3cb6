"""The command line as a user and as a program sees it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import dualanchor as da
from dualanchor.cli import output
from dualanchor.cli.app import app
from dualanchor.cli.options import parse_value
from dualanchor.cli.studies import _interruptible
from dualanchor.core.callbacks import Progress


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def data(*words):
    return json.loads(run(*words, "--json").stdout)


@pytest.mark.parametrize("command", [["reproduce", "no-such-panel"], ["compare", "no-such-problem", "-b", "9"]])
def test_studies_have_one_blas_thread_before_numpy_is_imported(command):
    """Several would add up in another order than the workers of --jobs 2."""
    script = (
        "import builtins, os, sys\n"
        "from dualanchor.cli import main\n"
        "importing, seen = builtins.__import__, []\n"
        "def noted(name, *rest):\n"
        "    if name == 'numpy' and not seen: seen.append(os.environ.get('OPENBLAS_NUM_THREADS'))\n"
        "    return importing(name, *rest)\n"
        "builtins.__import__ = noted\n"
        "try: main()\n"
        "finally: print(seen)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "['1']"


HEAVY = {"numpy", "scipy", "matplotlib", "plotly", "pandas", "jinja2", "joblib", "rich.console", "rich.progress"}


def test_the_help_of_solve_says_where_its_default_stands():
    text = CliRunner().invoke(app, ["solve", "--help"]).output
    words = " ".join(text.split())
    assert words.index("The default is s-dual-ohm") < words.index("[default: see above]")
    assert "planned from the constants or confirmed by a certificate" in words


@pytest.mark.parametrize("words", [["--help"], *([command, "--help"] for command in app.commands)])
def test_help_imports_nothing_heavy(words):
    script = (
        "import sys\nfrom dualanchor.cli import main\ntry: main()\n"
        f"finally: print(sorted(set({sorted(HEAVY)!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Usage: " in done.stdout


def test_python_m_dualanchor_has_the_version():
    done = subprocess.run([sys.executable, "-m", "dualanchor", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"dualanchor {da.__version__}"


@pytest.mark.parametrize("command", ["methods", "problems"])
def test_listings_are_complete(command):
    entries = {"methods": da.list_methods, "problems": da.list_problems}[command]()
    listed = data(command)
    assert [one["id"] for one in listed] == [entry.id for entry in entries]
    text = run(command).output
    for entry in entries:
        assert entry.id in text
        assert entry.title in run(command, entry.id).output


def test_solve_json_has_the_promised_keys_and_the_library_s_numbers():
    words = ["solve", "worst-case-nonexpansive", "--method", "s-dual-ohm", "-p", "batch_size=1"]
    out = data(*words, "-o", "dimension=101", "--budget", 100, "--reps", 5, "--seed", 3)
    problem = da.problems.worst_case_nonexpansive(dimension=101)
    result = da.solve(problem, "s-dual-ohm", budget=100, reps=5, seed=3)
    assert out["problem"] == "worst-case-nonexpansive"
    assert out["method"] == "s-dual-ohm"
    assert out["params"] == {"step_size": 1.0, "horizon": 100, "batch_size": 1, "estimator": None}
    assert out["budget"] == 100
    assert (out["nfev"], out["draws"], out["status"]) == (99, 99, "HORIZON")
    assert out["nfev_per_rep"] == [99] * 5 == out["draws_per_rep"]
    assert out["status_per_rep"] == ["HORIZON"] * 5
    final = out["final"]
    np.testing.assert_array_equal(final["per_rep"], result.residual)
    assert final["mean"] == pytest.approx(result.residual.mean())
    assert final["rms"] == pytest.approx(np.sqrt(np.mean(result.residual**2)))
    assert final["p5"] == pytest.approx(np.percentile(result.residual, 5))
    assert final["p95"] == pytest.approx(np.percentile(result.residual, 95))


def test_diverged_numbers_are_null_and_mixed_statuses_are_mixed():
    out = data("solve", "affine", "-m", "sgda", "-p", "step_size=50", "--budget", 2000, "--reps", 2)
    assert out["status"] == "DIVERGED"
    assert out["final"]["mean"] is None
    assert out["final"]["per_rep"] == [None, None]
    assert out["nfev"] < 2000


def test_it_prints_what_the_library_prints():
    text = run("solve", "affine", "--budget", 200, "--seed", 1).output
    assert text == repr(da.solve(da.problems.affine(), budget=200, seed=1)) + "\n"
    text = run("solve", "affine", "--eps", 0.1).output
    constants = da.problems.affine().constants
    plan = da.plan(eps=0.1, L=constants.L, D=constants.D, sigma=constants.sigma)
    assert text.startswith(repr(plan))  # said before the run
    assert "residual: " in text


def test_plans_with_a_prox_and_a_confidence():
    known = {"eps": 0.5, "M": 1.0, "D": 1.0, "sigma": 1.0}
    words = [word for name, value in known.items() for word in (f"--{name}", value)]
    options = {"prox": True, "confidence": 0.75}
    assert run("plan", *words, "--prox", "--confidence", 0.75).output == repr(da.plan(**known, **options)) + "\n"


def test_schedules_estimators_and_rules(tmp_path):
    out = data("solve", "affine", "-p", "batch_size=Tapered(20)", "--budget", 500)
    assert out["params"]["batch_size"] == "Tapered(C=20)"
    assert out["nfev"] <= 500
    out = data("solve", "affine", "-p", "estimator=PAGE(10, 2)", "-p", "horizon=20")
    assert out["nit"] == 19
    out = data("solve", "affine", "-m", "sgda", "--budget", 500, "--steps", 7)
    assert (out["nit"], out["status"]) == (7, "STEPS")
    out = data("solve", "affine", "-m", "sgda", "-o", "sigma=0", "-o", "mu=0.5", "--budget", 500, "--target", 0.01)
    assert out["status"] == "TARGET"
    assert out["final"]["mean"] <= 0.01


@pytest.mark.slow
def test_save_plot_and_checkpoint(tmp_path):
    saved, figure, checkpoint = tmp_path / "r.npz", tmp_path / "f.png", tmp_path / "c.npz"
    words = ["solve", "affine", "--budget", 300, "--save", saved, "--plot", figure, "--checkpoint", checkpoint]
    out = data(*words)
    assert da.Result.load(saved).residual == out["final"]["mean"]
    assert figure.stat().st_size > 5000
    again = data(*words)  # taken up from the finished checkpoint
    assert {**again, "findings": None} == {**out, "findings": None}


def test_a_problem_from_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import dualanchor as da\n"
        "def make(sigma=0.1):\n"
        "    return da.Problem(da.AdditiveNoise(lambda x: 2 * x, sigma), [1.0, 1.0], constants=da.Constants(L=2.0))\n"
        "ready = make()\n"
    )
    assert data("solve", f"{file}:ready", "--budget", 50)["nfev"] == 49
    exact = data("solve", f"{file}:make", "-o", "sigma=0", "--budget", 50)["final"]["mean"]
    assert exact == pytest.approx(2 * 2**0.5 / 50)  # T = 0: the last iterate is x0 / N


@pytest.fixture
def sampled(tmp_path):
    """A file with a sampler, a problem that can only be sampled, with and without constants, and a function."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "import dualanchor as da\n"
        "def sample(x, n, rng):\n"
        "    return 2 * (x - 1) + rng.normal(size=(n, 2)).mean(axis=0)\n"
        "known = da.Problem(da.Sampler(sample), [0.0, 0.0], constants=da.Constants(L=2.0, sigma=1.5))\n"
        "named = da.Problem(da.Sampler(sample), [0.0, 0.0], name='own name')\n"
        "def factory():\n"
        "    return known\n"
        "def needy(sigma):\n"
        "    return known\n"
        "seen = da.Problem(\n"
        "    da.AdditiveNoise(lambda x: 2 * x, 0.1), [1.0, 1.0], constants=da.Constants(L=2.0, sigma=0.1)\n"
        ")\n"
    )
    return file


def test_what_can_only_be_sampled_goes_through_the_front_door(sampled):
    out = data("solve", f"{sampled}:known", "--budget", 2000)
    assert (out["method"], out["problem"]) == ("auto", "known")
    assert out["nfev"] <= 2000
    # Batches of 1 leave about 0.6; auto ends below 0.1, and the bound from 256 samples adds about 0.2.
    assert np.linalg.norm(2 * (np.array(out["x"]) - 1)) < out["certificate"]["upper"] < 0.4
    assert data("solve", f"{sampled}:named", "--budget", 2000)["problem"] == "own name"
    assert data("solve", f"{sampled}:factory", "--budget", 2000)["problem"] == "factory"


def test_accuracies_are_reached_with_any_constants_declared(sampled):
    for name in ("known", "named", "seen"):
        out = data("solve", f"{sampled}:{name}", "--eps", 0.3)
        assert out["success"]
        assert out["certificate"]["upper"] <= 0.3


def test_a_method_by_name_says_how_to_certify(sampled, tmp_path):
    out = data("solve", f"{sampled}:known", "-m", "s-dual-ohm", "--budget", 200)
    assert out["certificate"] is None
    assert f"dualanchor certify {sampled}:known --point run.npz -n 4096" in out["hint"]
    for number, words in enumerate((["-m", "s-dual-ohm"], [])):
        saved = tmp_path / f"{number}.npz"
        run("solve", f"{sampled}:known", *words, "--budget", 200, "--save", saved)
        assert "with confidence 95 %" in run("certify", f"{sampled}:known", "--point", saved, "-n", 64).output
    problem = da.Problem(da.AdditiveNoise(lambda x: x, 1.0), [0.0, 0.0])
    da.root(problem._oracle, [0.0, 0.0], budget=200).save(tmp_path / "root.npz")
    run("certify", f"{sampled}:known", "--point", tmp_path / "root.npz", "-n", 64)
    run("solve", "affine", "-o", "dimension=2", "--budget", 200, "--save", tmp_path / "affine.npz")
    run("certify", f"{sampled}:known", "--point", tmp_path / "affine.npz", "-n", 64, code=2)


def test_a_figure_without_anything_to_show_is_refused_before_the_run(sampled, tmp_path):
    figure = tmp_path / "f.png"
    output = run("solve", f"{sampled}:known", "-m", "sgda", "--budget", "10" * 9, "--plot", figure, code=2).output
    assert "only be sampled" in output
    run("solve", f"{sampled}:known", "--budget", 200, "--plot", figure)
    assert figure.stat().st_size > 5000


def test_names_in_a_file(sampled):
    output = run("solve", f"{sampled}:sample", "--budget", 10, code=2).output
    assert "a function of (x, n, rng)" in output
    assert "da.Problem(da.Sampler(sample), x0=...)" in output
    cases = {
        ("typo",): "Choose one of factory, known, named, needy, seen.",
        ("known", "-o", "sigma=1"): "known is not one. Got {'sigma': 1}. Leave -o out.",
        ("factory", "-o", "sigma=1"): "Got sigma for factory(). Set its arguments with -o name=value.",
        ("needy",): "Got no options for needy(sigma). Set its arguments with -o name=value.",
        ("np",): "Got module. An oracle becomes one by da.Problem(oracle, x0=...).",
    }
    for (name, *words), message in cases.items():
        assert message in run("solve", f"{sampled}:{name}", *words, "--budget", 10, code=2).output


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["solve", "afine", "--budget", "10"], ("problem", "'afine'", "Did you mean affine?")),
        (["solve", "affine", "-m", "s-dual-omh", "--budget", "10"], ("method", "'s-dual-omh'", "s-dual-ohm")),
        (["solve", "affine", "-p", "batchsize=1", "--budget", "10"], ("parameter", "'batchsize'", "batch_size")),
        (["solve", "affine", "-o", "sgima=1", "--budget", "10"], ("option", "'sgima'", "sigma")),
        (["solve", "affine", "-p", "batch_size=20", "--budget", "10"], ("batch_size", "20", "smaller batch")),
        (["solve", "affine", "--budget", "0"], ("budget", "0", ">= 1")),
        (["solve", "affine"], ("end the run", "neither --budget nor --eps", "Pass --budget, --eps")),
        (["solve", "affine", "-p", "batch_size=2"], ("horizon", "neither --budget", "-p horizon=100")),
        (["solve", "affine", "-p", "step_size=9", "--budget", "10"], ("2/L = 2", "9", "--no-check")),
        (["solve", "nowhere.py:x", "--budget", "10"], ("exist", "nowhere.py", "Check the path")),
        (["solve", "mine.py", "--budget", "10"], ("file.py:name", "mine.py", "Write")),
        (["methods", "sgd"], ("method", "'sgd'", "sgda")),
        (["solve", "affine", "-b", "10", "-p", "batch_size"], ("name=value", "'batch_size'", "batch_size=10")),
        (["solve", "affine", "-b", "10", "-p", "batch_size=Tapered(-1)"], ("Tapered(-1) cannot be made", "-1", "Use")),
        (["solve", "affine", "-b", "10", "--workers", "2"], ("is for an engine", "2", "--engine local")),
        (["solve", "affine", "-b", "10", "--eps", "0.1"], ("plans everything", "--budget or -p", "Leave")),
        (["solve", "affine", "--eps", "0.1", "-m", "sgda"], ("--eps plans dual-ohm", "'sgda'", "Leave --method")),
        (["solve", "affine", "-b", "10", "--save", "none/x.npz"], ("folder that exists", "none/x.npz", "Create")),
        (["solve", "affine", "-b", "10", "--plot", "x.xyz"], ("figure format", "x.xyz", "residual.png")),
        (["plan", "--eps", "0.1", "--L", "1", "--sigma", "1"], ("D must be given", "None", "Pass D")),
    ],
)
def test_bad_input_gets_a_message_in_three_parts(words, parts):
    output = run(*words, code=2).output
    for part in parts:
        assert part in output
    assert "Traceback" not in output


def test_a_file_that_is_not_there_is_named_in_words(tmp_path):
    output = run("certify", "affine", "-n", 100, "--point", tmp_path / "none.npz", code=2).output
    assert f"No such file or directory: {tmp_path / 'none.npz'}" in output
    assert "Errno" not in output


def test_words_of_the_command_line_are_never_evaluated():
    assert parse_value("__import__('os').getcwd()") == "__import__('os').getcwd()"
    assert parse_value("1,2,4") == [1, 2, 4]
    assert parse_value("1e-3") == 1e-3
    assert parse_value("none") is None
    assert parse_value("growing(0.5)") == da.Growing(0.5)


def test_counts_in_scientific_notation():
    words = ("solve", "affine", "-m", "sgda", "-p", "step_size=0.1", "--budget")
    assert data(*words, "2e2") == data(*words, 200)
    assert data("certify", "affine", "--samples", "1e2") == data("certify", "affine", "--samples", 100)
    for wrong in ("2.5", "1e-1", "inf", "nan", "many"):
        assert f"'{wrong}' is not a valid integer" in run(*words, wrong, code=2).output


ENDLESS = """
import itertools, pathlib
import numpy as np, dualanchor as da
calls = itertools.count()
def F(x):
    if next(calls) == 1000:
        pathlib.Path(__file__).with_name("under way").touch()
    return x
problem = da.Problem(da.AdditiveNoise(F, 0.1), np.ones(2), constants=da.Constants(L=1.0))
"""


@pytest.mark.slow
def test_ctrl_c_keeps_the_partial_result_and_the_checkpoint(tmp_path):
    (tmp_path / "mine.py").write_text(ENDLESS)
    checkpoint = tmp_path / "c.npz"
    words = ["solve", f"{tmp_path}/mine.py:problem", "-m", "sgda", "--budget", "100000000", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dualanchor", *words, "--checkpoint", str(checkpoint)], stdout=subprocess.PIPE, text=True
    )
    while not (tmp_path / "under way").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    found = json.loads(out)
    assert found["status"] == "INTERRUPTED"
    assert found["nfev"] > 0
    assert checkpoint.exists()


BLIND = """
import numpy as np, dualanchor as da
problem = da.Problem(da.Sampler(lambda x, n, rng: x), np.ones(2), constants=da.Constants(L=1.0))
"""


def test_advice_names_options_of_the_command(tmp_path):
    (tmp_path / "mine.py").write_text(BLIND)
    said = run("solve", "affine", "--budget", 500, "-p", "step_size=100", code=2).output
    assert "2/L = 2" in said
    assert "add --no-check to run outside the theorem." in " ".join(said.split())
    run("solve", "affine", "--budget", 500, "-p", "step_size=3", "--no-check")
    said = run("solve", "affine", "-m", "sgda", "-p", "step_size=0.1", code=2).output
    assert "Pass --budget, --eps or --steps" in said
    said = run("solve", f"{tmp_path}/mine.py:problem", "-m", "sgda", "-b", 50, "--target", 0.1, code=2).output
    assert "Use --budget, --steps or --wall-time" in said


def test_missing_command_line_extra_is_named(tmp_path):
    (tmp_path / "click.py").write_text("raise ImportError('not here')")
    done = subprocess.run(
        [sys.executable, "-m", "dualanchor", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode != 0
    assert "pip install 'dualanchor[cli]', or '.[cli]' in a checkout" in done.stderr
    assert "Traceback" not in done.stderr


def test_progress_lines_come_every_two_seconds_and_later_every_ten():
    now, shown = 0.0, []
    show = output.lines(shown.append, clock=lambda: now)
    for second in range(31):
        now = float(second)
        show(second, 100, "step")
    assert [text.rsplit(", ", 1)[1] for text in shown] == ["2 s", "4 s", "6 s", "8 s", "18 s", "28 s"]
    assert shown[0] == "  2%, step, 2 s"
    now = 40.0
    show(0.0, None, "a run without a known end")
    assert shown[-1] == "a run without a known end, 40 s"


def test_a_run_has_a_line_of_progress_from_its_beginning():
    """At the beginning the part that is done is 0: the first line was a division by it, blamed on the oracle."""
    shown = []
    report = output.of_run(output.lines(shown.append, clock=iter([0.0, 2.0, 4.0, 6.0]).__next__))
    for fraction in (0.0, 0.5, None):
        report(Progress(1, fraction, 1, 1, 10, 2.0))
    assert [text.split(" 1 of 1 rows")[0] for text in shown] == [
        "  0%, step 1, 10 evaluations,",
        " 50%, step 1, 10 evaluations,",
        "step 1, 10 evaluations,",
    ]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(output, "_INTERVAL", -1.0)  # at once
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with output.progress_bar(quiet=False) as show:
        show(1, 2, "halfway [there]")
    assert "halfway [there]" in capsys.readouterr().err
    with output.progress_bar(quiet=True) as show:
        assert show is output.of_run(show) is output.of_study(show) is None


def test_failures_of_threads_are_shown_unless_an_interrupt_caused_them(monkeypatch, tmp_path, capsys):
    shown = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: shown.append(failure.exc_type))

    def fail():
        thread = threading.Thread(target=int, args=("x",))
        thread.start()
        thread.join()

    with _interruptible(tmp_path):
        fail()
    assert shown == [ValueError]
    (tmp_path / "piece.npz").touch()

    def interrupted():
        fail()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), _interruptible(tmp_path):
        interrupted()
    assert shown == [ValueError]
    assert "the same command goes on" in capsys.readouterr().err


def test_the_command_in_the_readme_that_names_experiment_1():
    out = data("solve", "worst-case-nonexpansive", "-p", "batch_size=1", "--budget", 2000, "--reps", 4, "--seed", 0)
    assert 0.09 < out["final"]["mean"] < 0.12


RAISING = """
import numpy as np, dualanchor as da

def sample(x, n, rng):
    return x[7]

def wide(x, n, rng):
    return 2 * x - 1 + rng.standard_normal(3) / np.sqrt(n)

raising = da.Problem(da.Sampler(sample), np.ones(3), constants=da.Constants(L=1.0))
low = da.Problem(da.Sampler(wide), np.ones(3), constants=da.Constants(L=5.0, sigma=0.02, D=4.0))
"""


@pytest.mark.parametrize("words", [["--budget", "100"], ["--budget", "100", "-m", "sgda"]])
def test_an_error_in_a_user_s_function_names_its_line(tmp_path, words):
    (tmp_path / "mine.py").write_text(RAISING)
    said = run("solve", f"{tmp_path / 'mine.py'}:raising", *words, code=2).stderr
    assert "IndexError: index 7 is out of bounds" in said
    assert f"{tmp_path / 'mine.py'}, line 5." in said
    assert "above" not in said


@pytest.mark.slow
def test_studies_say_what_went_wrong_in_a_process(tmp_path):
    (tmp_path / "mine.py").write_text(RAISING)
    words = ("compare", f"{tmp_path / 'mine.py'}:raising", "--budget", 100, "--methods", "sgda,seg", "--jobs", 2)
    said = run(*words, "--out", tmp_path / "out", code=2).stderr
    assert "Sampler: sample must not raise. Got IndexError" in said


def test_warnings_are_shown_once_with_the_result(tmp_path):
    (tmp_path / "mine.py").write_text(RAISING)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = run("solve", f"{tmp_path / 'mine.py'}:low", "--eps", 0.1)
    assert "sigma = 0.02 is too small" in shown.stdout
    assert shown.stderr == ""
    assert "success: False" in shown.stdout
