"""dualanchor: roots, fixed points and saddle points of operators that can only be sampled.

Names are imported when they are first used, so that `import dualanchor` is quick.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from dualanchor._version import __version__

if TYPE_CHECKING:
    from dualanchor import engines, problems, prox, theory
    from dualanchor.advise.calibrate import calibrate
    from dualanchor.advise.calibration import Calibration
    from dualanchor.advise.certify import Certificate, best_of, certify
    from dualanchor.advise.plan import plan
    from dualanchor.advise.planned import Plan
    from dualanchor.core import errors
    from dualanchor.core.method import Estimator, Method
    from dualanchor.core.oracle import Batch, Oracle, Session
    from dualanchor.core.problem import Constants, Problem
    from dualanchor.core.result import History, Result, Status
    from dualanchor.core.schedule import Growing, Tapered
    from dualanchor.core.streams import Streams
    from dualanchor.estimators import PAGE, Minibatch
    from dualanchor.front import fixed_point, inclusion, root, saddle
    from dualanchor.methods import list_methods
    from dualanchor.methods.anytime_dual_ohm import AnytimeDualOHM
    from dualanchor.methods.averaged import AveragedSGDA
    from dualanchor.methods.averaging import averaged
    from dualanchor.methods.dual_feg import DualFEG
    from dualanchor.methods.dual_oc_halpern import DualOCHalpern
    from dualanchor.methods.dual_ohm import DualOHM
    from dualanchor.methods.eag import EAG
    from dualanchor.methods.feg import FEG
    from dualanchor.methods.halpern_page import HalpernPAGE
    from dualanchor.methods.halpern_vr_finite import HalpernVRFinite
    from dualanchor.methods.oc_halpern import OCHalpern
    from dualanchor.methods.ohm import OHM
    from dualanchor.methods.rain import RAIN
    from dualanchor.methods.rain_double_loop import RAINDoubleLoop
    from dualanchor.methods.restarted_dual_ohm import RestartedDualOHM
    from dualanchor.methods.seg import SEG
    from dualanchor.methods.sgda import SGDA
    from dualanchor.methods.sgda_decreasing import DecreasingSGDA
    from dualanchor.methods.tapered_dual_ohm import TaperedDualOHM
    from dualanchor.oracles import AdditiveNoise, FiniteSum, Sampler
    from dualanchor.problems import list_problems
    from dualanchor.run import Budget, Checkpoint, Draws, Steps, Target, WallTime, solve
    from dualanchor.studies.compare import compare

_HOME = {
    # the front doors
    "root": "front",
    "fixed_point": "front",
    "saddle": "front",
    "inclusion": "front",
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
    "RestartedDualOHM": "methods.restarted_dual_ohm",
    "AveragedSGDA": "methods.averaged",
    "averaged": "methods.averaging",
    "TaperedDualOHM": "methods.tapered_dual_ohm",
    "AnytimeDualOHM": "methods.anytime_dual_ohm",
    "DecreasingSGDA": "methods.sgda_decreasing",
    "EAG": "methods.eag",
    "FEG": "methods.feg",
    "DualFEG": "methods.dual_feg",
    "OCHalpern": "methods.oc_halpern",
    "DualOCHalpern": "methods.dual_oc_halpern",
    "RAINDoubleLoop": "methods.rain_double_loop",
    # running it
    "plan": "advise.plan",
    "Plan": "advise.planned",
    "solve": "run",
    "Budget": "run",
    "Draws": "run",
    "Steps": "run",
    "Target": "run",
    "WallTime": "run",
    "Checkpoint": "run",
    "compare": "studies.compare",
    "certify": "advise.certify",
    "best_of": "advise.certify",
    "calibrate": "advise.calibrate",
    # what comes out
    "Result": "core.result",
    "History": "core.result",
    "Status": "core.result",
    "Certificate": "advise.certify",
    "Calibration": "advise.calibration",
}
_MODULES = {
    "engines": "dualanchor.engines",
    "problems": "dualanchor.problems",
    "prox": "dualanchor.prox",
    "theory": "dualanchor.theory",
    "errors": "dualanchor.core.errors",
}

__all__ = [
    "__version__",
    "engines",
    "errors",
    "problems",
    "prox",
    "theory",
    "root",
    "fixed_point",
    "saddle",
    "inclusion",
    "Problem",
    "Constants",
    "Oracle",
    "Batch",
    "Session",
    "Streams",
    "AdditiveNoise",
    "FiniteSum",
    "Sampler",
    "list_problems",
    "Method",
    "Estimator",
    "DualOHM",
    "OHM",
    "SGDA",
    "SEG",
    "RAIN",
    "HalpernPAGE",
    "HalpernVRFinite",
    "Minibatch",
    "PAGE",
    "Tapered",
    "Growing",
    "list_methods",
    "RestartedDualOHM",
    "AveragedSGDA",
    "averaged",
    "TaperedDualOHM",
    "AnytimeDualOHM",
    "DecreasingSGDA",
    "EAG",
    "FEG",
    "DualFEG",
    "OCHalpern",
    "DualOCHalpern",
    "RAINDoubleLoop",
    "plan",
    "Plan",
    "solve",
    "Budget",
    "Draws",
    "Steps",
    "Target",
    "WallTime",
    "Checkpoint",
    "compare",
    "certify",
    "best_of",
    "calibrate",
    "Result",
    "History",
    "Status",
    "Certificate",
    "Calibration",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(importlib.import_module(f"dualanchor.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'dualanchor' has no attribute {name!r}")
    if (results := sys.modules.get("dualanchor.core.result")) is not None:
        results.plotter = _plotter  # type: ignore[attr-defined]
    globals()[name] = value
    return value


def _plotter() -> Any:
    """What `Result.plot` calls; core itself knows nothing of figures."""
    return importlib.import_module("dualanchor.report.figures").plot_result


def __dir__() -> list[str]:
    return sorted(__all__)
