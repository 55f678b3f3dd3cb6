"""dualanchor: roots, fixed points and saddle points of operators that can only be sampled.

Names are imported when they are first used, so that `import dualanchor` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dualanchor._version import __version__

if TYPE_CHECKING:
    from dualanchor import problems
    from dualanchor.core import errors
    from dualanchor.core.method import Estimator, Method
    from dualanchor.core.oracle import Batch, Oracle, Session
    from dualanchor.core.problem import Constants, Problem
    from dualanchor.core.result import History, Result, Status
    from dualanchor.core.schedule import Growing, Tapered
    from dualanchor.core.streams import Streams
    from dualanchor.estimators import PAGE, Minibatch
    from dualanchor.methods import list_methods
    from dualanchor.methods.dual_ohm import DualOHM
    from dualanchor.methods.halpern_page import HalpernPAGE
    from dualanchor.methods.halpern_vr_finite import HalpernVRFinite
    from dualanchor.methods.ohm import OHM
    from dualanchor.methods.rain import RAIN
    from dualanchor.methods.seg import SEG
    from dualanchor.methods.sgda import SGDA
    from dualanchor.oracles import AdditiveNoise, FiniteSum, Sampler
    from dualanchor.problems import list_problems
    from dualanchor.run import Budget, Checkpoint, Steps, Target, WallTime, solve

_HOME = {
    # what to solve
    "Problem": "core.problem",
    "Constants": "core.problem",
    "Oracle": "core.oracle",
    "Batch": "core.oracle",
    "Session": "core.oracle",
    "Streams": "core.streams",
    "AdditiveNoise": "oracles",
    "FiniteSum": "oracles",
    "Sampler": "oracles",
    "list_problems": "problems",
    # how to solve it
    "Method": "core.method",
    "Estimator": "core.method",
    "DualOHM": "methods.dual_ohm",
    "OHM": "methods.ohm",
    "SGDA": "methods.sgda",
    "SEG": "methods.seg",
    "RAIN": "methods.rain",
    "HalpernPAGE": "methods.halpern_page",
    "HalpernVRFinite": "methods.halpern_vr_finite",
    "Minibatch": "estimators",
    "PAGE": "estimators",
    "Tapered": "core.schedule",
    "Growing": "core.schedule",
    "list_methods": "methods",
    # running it
    "solve": "run",
    "Budget": "run",
    "Steps": "run",
    "Target": "run",
    "WallTime": "run",
    "Checkpoint": "run",
    # what comes out
    "Result": "core.result",
    "History": "core.result",
    "Status": "core.result",
}

__all__ = ["__version__", "errors", "problems", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "problems":
        return importlib.import_module("dualanchor.problems")
    if name == "errors":
        return importlib.import_module("dualanchor.core.errors")
    if name not in _HOME:
        raise AttributeError(f"module 'dualanchor' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dualanchor.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
