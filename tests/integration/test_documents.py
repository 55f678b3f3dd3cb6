"""Code in README and docs runs, examples run, and public names are complete."""

import re
import runpy
import sys
from pathlib import Path

import pytest

import dualanchor as da

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/quickstart.md", "docs/concepts.md", "docs/certificates.md", "docs/reproduction.md"]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_python_in_documents_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    space = {}
    for number, block in enumerate(blocks(page)):
        exec(compile(block, f"{page}, block {number}", "exec"), space)


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


def test_figure_example_writes_its_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["example", str(tmp_path / "figure.png")])
    runpy.run_path(str(ROOT / "examples/anchor_and_dual_anchor.py"))
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_skeletons_in_contributing_are_valid():
    for block in blocks("CONTRIBUTING.md"):
        exec(compile(block, "CONTRIBUTING.md", "exec"), {"__name__": "skeleton"})


def test_all_public_names_exist_and_are_listed():
    for name in da.__all__:
        assert getattr(da, name) is not None
    assert sorted(da.__all__) == dir(da)
    assert set(da._HOME) | set(da._MODULES) | {"__version__"} == set(da.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        da.nothing  # noqa: B018
