"""`dualanchor verify` as a user and as a program sees it, and the page about it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dualanchor.cli.app import app
from dualanchor.paper.verify import STATEMENTS, complexity, worst_case
from dualanchor.theory import bounds

ROOT = Path(__file__).parents[2]
KEYS = {"id", "statement", "source", "kind", "operator", "measured", "bound", "ratio", "standard_error", "verdict"}


def run(*words, code=0):
    result = CliRunner().invoke(app, ["verify", *map(str, words)])
    assert result.exit_code == code, result.output
    return result


def test_json_is_a_list_of_checks_with_the_promised_keys():
    checks = json.loads(
        run("--only", "lemma-4.2", "--only", "theorem-4.1,debiased-residual", "--quick", "--json").stdout
    )
    assert [one["id"] for one in checks] == ["lemma-4.2"] + ["theorem-4.1"] * 7 + ["debiased-residual"] * 4
    for one in checks:
        assert set(one) == KEYS
        assert one["kind"] in ("identity", "inequality", "rate")
        assert one["source"] in ("paper", "not in the paper")
        assert one["verdict"] == "holds"
        assert one["ratio"] is None or one["ratio"] == pytest.approx(one["measured"] / one["bound"])


def test_table_has_a_line_for_each_check_and_a_total():
    text = run("--only", "Lemma A.2", "--only", "theorem-c", "--quick").output
    assert re.search(r"Lemma A\.2 +inequality +T = I, N = 40, s = 0 +[\d.]+ +[\d.]+ +[01]\.\d+ +holds", text)
    assert text.index("The paper") < text.index("Not in the paper")
    assert "12 of 12 checks of 2 statements hold." in text


def test_a_failure_is_shown_and_gives_exit_code_1(monkeypatch):
    right = bounds.lemma_4_4
    monkeypatch.setattr(bounds, "lemma_4_4", lambda *given: 0.4 * right(*given))
    result = run("--only", "lemma-4.4", "--quick", code=1)
    assert "fails" in result.output
    assert "2 of 4 checks" in result.output
    failed = json.loads(run("--only", "lemma-4.4", "--quick", "--json", code=1).stdout)
    assert [one["verdict"] for one in failed] == ["fails", "fails", "holds", "holds"]


def test_bad_input_is_named():
    assert "Did you mean theorem-4.1" in run("--only", "theorem-41", code=2).output
    assert "--complexity stands by itself" in run("--complexity", "--only", "lemma-4.2", code=2).output
    run("--seed", "-1", code=2)


def test_missing_package_is_named_when_asked_for_and_mentioned_otherwise(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PEPit", None)
    assert "dualanchor[pep]" in run("--only", "lemma-4.2", "--pep", code=2).output
    monkeypatch.setattr(worst_case, "installed", lambda: False)
    monkeypatch.setattr("dualanchor.paper.verify.STATEMENTS", {"lemma-4.2": STATEMENTS["lemma-4.2"]})
    assert "dualanchor[pep]" in run().output
    assert "dualanchor[pep]" not in run("--quick").output


@pytest.mark.slow
def test_complexity_writes_numbers_and_a_picture(tmp_path, monkeypatch):
    measure, found = complexity.measure, []

    def once(**options):
        found.extend([] if found else measure(**options))
        return found

    monkeypatch.setattr(complexity, "measure", once)  # for both runs
    out = tmp_path / "new" / "folder"
    numbers = json.loads(run("--complexity", "--quick", "--out", out, "--json").stdout)
    assert {path.name for path in out.iterdir()} == {"complexity.json", "complexity.png", "complexity.svg"}
    assert json.loads((out / "complexity.json").read_text()) == numbers
    assert len(numbers["curves"]) == 9
    for curve in numbers["curves"]:
        assert curve["verdict"] == "holds"
        assert abs(curve["without_logarithms"]["exponent"] - curve["claim"]) <= 0.25
        assert set(curve["planned"]) == set(curve["measured"]) == {"exponent", "low", "high"}
        assert curve["measured"]["low"] <= curve["measured"]["high"]
        assert len(curve["points"]) == 5
    text = run("--complexity", "--quick", "--out", out).output
    assert re.search(r"Theorem B +2 +2\.\d\d", text)
    assert "complexity.png" in text


def test_page_lists_every_statement():
    page = (ROOT / "docs/verification.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| ([a-z][a-z0-9.-]+) \| (?:identity|inequality|rate)", page, re.MULTILINE)) == set(
        STATEMENTS
    )
    assert "fails" not in re.sub(r"It fails when|fails once|anything fails", "", page)
