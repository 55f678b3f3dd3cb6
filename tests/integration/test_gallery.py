"""Every script of the gallery runs at small size, as a reader would run it, and prints its table."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "examples/gallery").glob("plot_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_runs_at_small_size(script, tmp_path):
    small = {**os.environ, "DUALANCHOR_GALLERY": "small", "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=small, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for column in ("samples", "seconds", "certificate", "truth"):
        assert column in done.stdout
    assert not list(tmp_path.iterdir())  # it leaves nothing behind


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_begins_with_its_title(script):
    title, line = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))).splitlines()[:2]
    assert line == "=" * len(title)


def code_lines(text):
    """Lines of code without docstring, comments, imports and the figure, which ends with plt.show()."""
    _, *body = ast.parse(text).body
    lines, drawing = [], False
    for node in body:
        source = ast.get_source_segment(text, node)
        drawing = drawing or source.startswith("figure, ")
        if not drawing and not isinstance(node, ast.Import | ast.ImportFrom):
            lines += [line for line in source.splitlines() if line.strip() and not line.strip().startswith("#")]
        drawing = drawing and source != "plt.show()"
    return len(lines)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_is_short_and_says_what_a_page_must_say(script):
    text = script.read_text(encoding="utf-8")
    assert 30 <= code_lines(text) <= 80
    for part in (r"^\*\*Assumptions\.\*\*", r"^\*\*Today\.\*\*", r"^# \*\*Where it loses\.\*\*"):
        assert re.search(part, text, flags=re.MULTILINE), part
