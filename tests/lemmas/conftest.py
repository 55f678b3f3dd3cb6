"""Asserts in the modules of statements explain themselves as those in tests do."""

import pytest

pytest.register_assert_rewrite("tests.lemmas.statements", "tests.lemmas.trajectory")
