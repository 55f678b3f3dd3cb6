"""Code in README and docs runs, examples run, and public names are complete."""

import ast
import inspect
import re
import runpy
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

import dualanchor as da
from dualanchor.core.files import jsonable
from dualanchor.core.schedule import Paired

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/concepts.md",
    "docs/solve.md",
    "docs/theory.md",
    "docs/certificates.md",
    "docs/reproduction.md",
    "docs/arrays.md",
    "docs/engines.md",
    "docs/findings.md",
    "docs/explainer.md",
    "docs/index.md",
]
SHOWING = [
    "docs/finite_sums.md",
    "docs/planning.md",
    "docs/choosing.md",
    "docs/inference.md",
    "docs/which_method.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/howto").glob("*.md") if path.stem != "index"),
]  # what a block prints stands below it


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_python_in_documents_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    space = {}
    for number, block in enumerate(blocks(page)):
        exec(compile(block, f"{page}, block {number}", "exec"), space)


@pytest.mark.parametrize("page", SHOWING)
def test_documents_show_what_their_examples_print(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, flags=re.DOTALL)
    assert any(output for _, output in shown)
    space = {}
    for number, (block, output) in enumerate(shown):
        exec(compile(block, f"{page}, block {number}", "exec"), space)
        assert capsys.readouterr().out == output, f"{page}, block {number}"


EXEMPT = {"CHANGELOG.md"}  # a list
LONGEST = 1500  # words of prose


def prose(text):
    """Words outside of code, tables, formulas and comments."""
    for pattern in (r"^```.*?^```\s*$", r"^\$\$.*?\$\$\s*$", r"^\|.*?$", r"<!--.*?-->"):
        text = re.sub(pattern, "", text, flags=re.DOTALL | re.MULTILINE)
    return len(re.sub(r"\$[^$]*\$", "x", text).split())


def test_no_page_is_too_long():
    pages = [path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")) if path.name not in EXEMPT]
    own = [path for path in pages if not {"_build", "_generated", "gallery"} & set(path.parts)]
    assert len(own) > 30
    lengths = {path.name: prose(path.read_text(encoding="utf-8")) for path in own}
    assert {name: words for name, words in lengths.items() if words > LONGEST} == {}


def test_which_method_is_answered_in_forty_lines():
    text = (ROOT / "docs/which_method.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40


@pytest.mark.slow
def test_quickstart_runs_and_finds_what_its_comments_say(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    expected = {"fixed_point": [0.5, 0.5], "saddle": [0.5, -0.5], "inclusion": [1.4, 1.8]}
    found, space = [], {}
    for number, block in enumerate(blocks("docs/quickstart.md")):
        exec(compile(block, f"quickstart, block {number}", "exec"), space)
        for door in expected:
            if f"da.{door}(" in block:
                found.append(door)
                assert np.abs(np.ravel(space["result"].x) - expected[door]).max() < 0.1, door
    assert sorted(found) == sorted(expected)


def test_choosing_page_names_what_runs_with_M_alone():
    def sample(x, n, rng):
        return x - 1 + rng.normal(size=2) / np.sqrt(n)

    text = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith("| only M, and a budget")]
    assert "the mean of extragradient half-steps, steps of 1/(2M)" in row
    by_budget, by_eps = (da.root(sample, np.zeros(2), M=1.0, **asked) for asked in ({"budget": 5000}, {"eps": 0.5}))
    expected = da.averaged(da.SEG(0.5, Paired(1, 3)), "uniform")
    assert by_budget.method["parameters"] == jsonable(expected.parameters())
    assert by_budget.method["id"] == by_eps.method["id"] == expected.id
    assert by_budget.claim is None  # as the page says
    assert by_eps.claim.kind is da.ClaimKind.CERTIFICATE


def test_choosing_page_has_the_certified_samples_of_today():
    kinds = {
        "affine, cocoercive": {"L": 1.0, "affine": True},
        "affine, monotone": {"M": 1.0, "affine": True},
        "cocoercive in expectation (A2)": {"L": 1.0},
        "cocoercive, samples need not be": {"L": 1.0, "cocoercive_in_expectation": False},
        "monotone, samples M-Lipschitz in mean square (A3)": {"M": 1.0},
        "the same, with a prox": {"M": 1.0, "prox": True},
        "monotone, M-Lipschitz": {"M": 1.0, "cocoercive_in_expectation": False},
    }
    lines = (ROOT / "docs/choosing.md").read_text(encoding="utf-8").splitlines()
    for kind, known in kinds.items():
        (row,) = [line for line in lines if line.startswith(f"| {kind} |")]
        for eps, cell in zip((0.1, 0.01, 0.001), row.split("|")[-4:-1], strict=True):
            samples = da.plan(eps=eps, D=1.0, sigma=1.0, **known).samples
            assert float(cell.replace(",", "")) == (samples if "e" not in cell else float(f"{samples:.2g}"))


def test_planning_page_has_the_costs_of_today():
    options = [{"bound": "paper"}, {"batches": "constant"}, {}, {"affine": True}, {"mu": 0.1}]
    table = (ROOT / "docs/planning.md").read_text(encoding="utf-8").split("<!-- costs -->")[1].split("<!-- end -->")[0]
    lines = table.strip().splitlines()[2:]
    for eps, line in zip((0.1, 0.01, 0.001), lines, strict=True):
        plans = [da.plan(eps=eps, L=1.0, D=1.0, sigma=1.0, **option) for option in options]
        counts = [f"{p.samples:,}" if p.samples < 1e9 else f"{p.samples:.3g}" for p in plans]
        cells = [f"{count} ({p.rounds:,})" for count, p in zip(counts, plans, strict=True)]
        assert line == "| " + " | ".join([f"{eps:g}", *cells]) + " |"


def test_planning_page_shows_what_the_command_prints():
    pytest.importorskip("click")
    from click.testing import CliRunner

    from dualanchor.cli.app import app

    text = (ROOT / "docs/planning.md").read_text(encoding="utf-8")
    command = re.search(r"`dualanchor (plan --eps .*?)`", text)[1]
    assert CliRunner().invoke(app, command.split()).output in text


def test_readme_shows_what_the_first_example_prints(capsys):
    runpy.run_path(str(ROOT / "examples/first_run.py"))
    printed = capsys.readouterr().out.strip("\n")
    assert printed in (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_starts_with_the_first_example():
    def statements(text):
        text = re.sub(r'^""".*?"""', "", text, flags=re.DOTALL)
        return [line.rstrip() for line in text.splitlines() if line.strip()]

    example = statements((ROOT / "examples/first_run.py").read_text(encoding="utf-8"))
    assert example == statements(blocks("README.md")[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["anchor_and_dual_anchor", "result_plots"])
def test_figure_examples_write_their_figures(name, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", ["example", str(tmp_path / "figure.png")])
    with matplotlib.rc_context():
        runpy.run_path(str(ROOT / f"examples/{name}.py"))
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_skeletons_in_contributing_keep_the_contract():
    space = {"__name__": "skeleton"}
    for block in blocks("CONTRIBUTING.md"):
        exec(compile(block, "CONTRIBUTING.md", "exec"), space)
    da.check_method(space["KrasnoselskiiMann"])
    problem = space["Identity"]()
    da.check_oracle(problem.instance(da.Streams(0, np.arange(1))).oracle, np.ones(problem.dimension))
    assert da.solve(problem, space["KrasnoselskiiMann"](0.5), budget=50).nfev == 50


def test_how_a_run_works_names_at_most_ten_files_and_they_are_on_the_way():
    def files(page):
        return set(re.findall(r"\w+/\w+\.py", (ROOT / page).read_text(encoding="utf-8")))

    shown = files("docs/figures/how_a_run_works.svg")
    assert len(shown) <= 10
    assert files("docs/how_a_run_works.md") <= shown
    passed = set()

    def sample(x, n, rng):
        frames = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_stack(sys._getframe())]
        passed.update(f"{path.parent.name}/{path.name}" for path in frames)
        return x - 1 + rng.normal(size=2) / np.sqrt(n)

    da.root(sample, np.zeros(2), eps=0.5, L=1.0, sigma=1.5, D=2.0)
    assert shown - passed == {"run/outcome.py"}  # on the way back


def test_contributing_shows_every_folder():
    tree = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## The tree")[1].split("```")[1]
    packages = {path.parent.name for path in (ROOT / "src/dualanchor").glob("*/__init__.py")}
    folders = packages | {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders <= set(re.findall(r"^ *(\w+)/", tree, flags=re.MULTILINE))


def test_all_public_names_exist_and_are_listed():
    for name in da.__all__:
        assert getattr(da, name) is not None
    assert sorted(da.__all__) == dir(da)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        da.nothing  # noqa: B018


def test_each_public_name_has_an_example():  # which `make doctest` runs
    names = [name for name in da.__all__ if name != "__version__"]
    assert [name for name in names if ">>>" not in (inspect.getdoc(getattr(da, name)) or "")] == []


def test_type_checkers_see_the_names_that_are_imported_on_demand():
    body = ast.parse(Path(da.__file__).read_text(encoding="utf-8")).body
    (block,) = [node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {alias.asname: node.module for node in block.body for alias in node.names if alias.asname == alias.name}
    table = {name: f"dualanchor.{module}" for name, module in da._MODULE_OF.items()}
    packages = {name: f"dualanchor.{module}".rpartition(".")[0] for name, module in da._PACKAGES.items()}
    assert seen == {**table, **packages}
