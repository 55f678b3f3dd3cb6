"""Whatever code a piece runs is in its fingerprint: what runs is traced, and compared with what is hashed."""

import sys
import textwrap
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import dualanchor as da
from dualanchor.studies import fingerprint, pieces
from dualanchor.studies.panel import Entry, Panel

LIBRARY = Path(da.__file__).parent
USER = """
    from dataclasses import dataclass
    import dualanchor as da
    import mystep

    @dataclass(frozen=True)
    class Mine(da.SGDA):
        id = "mine"

        def update(self, k, s, G):
            s.x -= mystep.step(self.step_size) * G

    class MyProblem(da.problems.Affine):
        id = "my-problem"
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A module with a method and a problem, which imports another one beside it."""
    (tmp_path / "mystep.py").write_text("def step(a):\n    return a\n")
    (tmp_path / "mymethod.py").write_text(textwrap.dedent(USER))
    monkeypatch.syspath_prepend(tmp_path)
    spec = spec_from_file_location("mymethod", tmp_path / "mymethod.py")
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mymethod", module)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("mystep")


def piece_of(method, problem=None):
    problem = problem or da.problems.affine(dimension=4, mu=0.5)
    entry = Entry("one", method)
    return pieces.Piece(Panel("p", "p", problem, 60, (entry,)), entry, ({},), (0, 1), curves=True)


def executed(piece):
    """Files whose functions run while a piece is computed."""
    files = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":  # registries import what they do not run
            files.add(Path(frame.f_code.co_filename))

    sys.setprofile(note)
    try:
        piece.run()
    finally:
        sys.setprofile(None)
    return files


def hashed(piece):
    """Files that the fingerprint of a piece covers."""
    return fingerprint.source_files([type(piece.panel.problem), piece.entry.cls])


def changed(piece, path, monkeypatch):
    """Whether a comment at the end of a file changes the fingerprint of a piece."""
    read, before = fingerprint._read, piece.code
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "_read", lambda file: read(file) + b"# edited\n" * (file == path))
        return piece.code != before


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(da.methods.registry.all()))
def test_code_that_runs_is_hashed(method):
    finite = da.problems.finite_sum_cocoercive(components=8, dimension=5, rank=4)
    piece = piece_of(method, finite if method in ("halpern-vr-finite", "svrg") else None)
    ran = {path for path in executed(piece) if path.is_relative_to(LIBRARY)}
    assert ran <= hashed(piece)
    assert LIBRARY / "run/solve.py" in ran


@pytest.mark.parametrize("problem", sorted(da.problems.registry.all()))
def test_code_of_a_problem_is_hashed(problem):
    piece = piece_of("sgda", da.problems.make(problem, {}))
    assert {path for path in executed(piece) if path.is_relative_to(LIBRARY)} <= hashed(piece)


def test_an_edit_of_any_module_whose_numbers_enter_changes_the_fingerprint(monkeypatch):
    piece = piece_of("auto")
    for path in executed(piece) | {LIBRARY / "theory/schedules/tapered.py"}:
        if path.is_relative_to(LIBRARY):
            assert changed(piece, path, monkeypatch), path


def test_an_edit_of_what_shows_numbers_does_not(monkeypatch):
    piece = piece_of("auto")
    for package in ("report", "cli", "paper", "integrations"):
        for path in (LIBRARY / package).rglob("*.py"):
            assert not changed(piece, path, monkeypatch), path


def test_a_user_s_files_count(user, monkeypatch, tmp_path):
    piece = piece_of(user.Mine, user.MyProblem(dimension=4))
    for path in (tmp_path / "mymethod.py", tmp_path / "mystep.py", LIBRARY / "methods/sgda.py"):
        assert changed(piece, path, monkeypatch)
    assert changed(piece, LIBRARY / "theory/schedules/tapered.py", monkeypatch)  # at hand as da.theory
    assert not changed(piece_of("sgda"), tmp_path / "mymethod.py", monkeypatch)


def test_code_of_an_object_among_the_parameters_counts(monkeypatch):
    entry = Entry("one", "sgda", fixed={"batch_size": da.Growing(0.5)})
    panel = Panel("p", "p", da.problems.affine(dimension=4), 60, (entry,))
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "_file_of", lambda cls: None if cls is da.Growing else LIBRARY / "__init__.py")
        assert pieces.Piece(panel, entry, ({},), (0,)).code is None
    assert pieces.Piece(panel, entry, ({},), (0,)).code is not None


def test_code_that_is_in_no_file_and_problems_of_functions_have_no_fingerprint():
    typed = type("Typed", (da.SGDA,), {"__module__": "console"})
    assert piece_of(typed).code is None
    assert piece_of("sgda", da.Problem(da.AdditiveNoise(lambda x: x, 0.1), np.ones(2))).code is None


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_file_in_a_package_counts_with_the_whole_package(tmp_path):
    files = {"pack/__init__.py": "", "pack/a.py": "from . import b\n", "pack/b.py": "", "pack/sub/c.py": "import os\n"}
    write(tmp_path, files | {"beside.py": ""})
    (tmp_path / "pack/.#a.py").symlink_to("user@host")  # an editor's lock
    found = fingerprint.with_imports(tmp_path / "pack/a.py")
    assert {path.relative_to(tmp_path).as_posix() for path in found} == set(files)


def test_imports_of_a_script_are_followed_within_its_folder(tmp_path):
    files = {
        "script.py": "import os, numpy\nfrom beside import f\nimport pack.sub.c\n",
        "beside.py": "def f():\n    from late import g\n",
        "late.py": "g = 1\n",
        "pack/__init__.py": "",
        "pack/broken.py": "this is not Python",
        "pack/sub/c.py": "from ..d import e\nimport later\n",
        "pack/d.py": "e = 1\n",
        "later.py": "",
    }
    write(tmp_path, files | {"unused.py": ""})
    found = fingerprint.with_imports(tmp_path / "script.py")
    assert {path.relative_to(tmp_path).as_posix() for path in found} == set(files)
