"""The scripts that write tables on the pages find what they import."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

TOOLS = sorted((Path(__file__).parents[2] / "tools").glob("*.py"))


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_a_tool_can_be_imported(path):
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.__doc__
