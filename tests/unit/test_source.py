"""The shape of the source: one meaning per class name, files that can be read at a sitting."""

import ast
from collections import Counter
from pathlib import Path

import dualanchor

FILES = sorted(Path(dualanchor.__file__).parent.rglob("*.py"))
OF_TWO_LIBRARIES = {"OHM"}  # a method, and the optimiser in PyTorch that takes its steps


def test_a_class_name_stands_once():
    nodes = (node for file in FILES for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert len(names) > 200
    assert {name for name, count in names.items() if count > 1} == OF_TWO_LIBRARIES


def test_no_file_is_longer_than_350_lines():
    lengths = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert [name for name, length in lengths.items() if length > 350] == []
