"""What a release says of itself in several places: versions, dependencies, lower bounds."""

import re
import tomllib
from pathlib import Path

import dualanchor as da

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def bounds(requirements):
    """Lower bounds by name in small letters."""
    found = (re.fullmatch(r"([\w.-]+?)(?:-base)? ?>=([\d.]+)", one) for one in requirements)
    return {match[1].lower(): match[2] for match in found if match}


def extras():
    """The lower bounds of the library and of the extra `all`."""
    optional = PROJECT["optional-dependencies"]
    (everything,) = optional["all"]
    names = re.search(r"\[(.*)\]", everything)[1].split(",")
    return bounds([*PROJECT["dependencies"], *(one for name in names for one in optional[name])])


def test_one_version_everywhere():
    assert re.search(r"^## \[(.+?)\]", text("CHANGELOG.md"), flags=re.MULTILINE)[1] == da.__version__
    assert re.search(r"^version: (.+)$", text("CITATION.cff"), flags=re.MULTILINE)[1] == da.__version__
    assert re.search(r'set version = "(.+?)"', text("recipe/meta.yaml"))[1] == da.__version__
    assert f"| {da.__version__.rpartition('.')[0]} | yes |" in text("SECURITY.md")


def test_the_recipe_asks_for_what_the_project_asks_for():
    listed = re.findall(r"^    - (.+)$", text("recipe/meta.yaml"), flags=re.MULTILINE)
    asked = bounds(listed)
    assert asked.pop("python") == PROJECT["requires-python"].removeprefix(">=")
    assert asked.pop("hatchling") == "1.27"
    assert asked == extras()
    assert all(f"{name} = {target}" in listed for name, target in PROJECT["scripts"].items())
    assert f"summary: {PROJECT['description']}" in text("recipe/meta.yaml")


def test_the_oldest_versions_are_the_lower_bounds():
    pinned = dict(re.findall(r"^([\w.-]+)==([\d.]+)$", text("constraints-oldest.txt"), flags=re.MULTILINE))
    pinned = {name.lower(): version for name, version in pinned.items()}
    assert pinned.keys() == extras().keys() | {"pyparsing"}
    for name, lowest in extras().items():
        assert f"{pinned[name]}.".startswith(f"{lowest}."), name


def test_the_page_of_versions_has_them():
    page = text("docs/versions.md")
    for name in ("numpy", "scipy", "matplotlib", "pandas"):
        (row,) = [line for line in page.splitlines() if line.lower().startswith(f"| {name} ")]
        assert row.split("|")[2].strip() == extras()[name]
    supported = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+", one)]
    assert all(version in page for version in supported)
