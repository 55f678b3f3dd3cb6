"""dualanchor: roots, fixed points and saddle points of operators that can only be sampled.

Names are imported when they are first used, so that `import dualanchor` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dualanchor._version import __version__ as __version__

if TYPE_CHECKING:  # the table below for type checkers; `as` makes a name public
    from dualanchor import engines as engines, problems as problems, prox as prox, theory as theory  # noqa: I001
    from dualanchor.advise.calibrate import calibrate as calibrate
    from dualanchor.advise.calibration import Calibration as Calibration
    from dualanchor.advise.certify import best_of as best_of, certify as certify
    from dualanchor.advise.gap import GapCertificate as GapCertificate, certify_gap as certify_gap
    from dualanchor.advise.gap import exploitability as exploitability
    from dualanchor.advise.infer import infer as infer
    from dualanchor.advise.inference import Inference as Inference
    from dualanchor.advise.plan import plan as plan
    from dualanchor.advise.planned import Plan as Plan
    from dualanchor.checks import check_method as check_method, check_oracle as check_oracle
    from dualanchor.core import errors as errors
    from dualanchor.core.certificate import Certificate as Certificate
    from dualanchor.core.claim import Claim as Claim, ClaimKind as ClaimKind, Theorem as Theorem
    from dualanchor.core.finding import Finding as Finding, Severity as Severity
    from dualanchor.core.history import History as History, Status as Status
    from dualanchor.core.method import Cost as Cost, Estimator as Estimator, Method as Method
    from dualanchor.core.staged import Stage as Stage, Staged as Staged
    from dualanchor.core.oracle import Batch as Batch, Oracle as Oracle
    from dualanchor.core.problem import Constants as Constants, Problem as Problem
    from dualanchor.core.result import Result as Result
    from dualanchor.core.schedule import Growing as Growing, Tapered as Tapered
    from dualanchor.core.session import Session as Session
    from dualanchor.core.streams import Streams as Streams
    from dualanchor.estimators import PAGE as PAGE, Minibatch as Minibatch
    from dualanchor.front import fixed_point as fixed_point, inclusion as inclusion, root as root, saddle as saddle
    from dualanchor.integrations import scipy as scipy
    from dualanchor.methods import list_methods as list_methods
    from dualanchor.methods.averaged import AveragedSGDA as AveragedSGDA, averaged as averaged
    from dualanchor.methods.dual_ohm import DualOHM as DualOHM, TaperedDualOHM as TaperedDualOHM
    from dualanchor.methods.eag import EAG as EAG
    from dualanchor.methods.feg import FEG as FEG, DualFEG as DualFEG
    from dualanchor.methods.halpern_page import HalpernPAGE as HalpernPAGE
    from dualanchor.methods.halpern_vr_finite import HalpernVRFinite as HalpernVRFinite
    from dualanchor.methods.mirror_prox import MirrorProx as MirrorProx
    from dualanchor.methods.oc_halpern import DualOCHalpern as DualOCHalpern, OCHalpern as OCHalpern
    from dualanchor.methods.ohm import OHM as OHM
    from dualanchor.methods.rain import RAIN as RAIN
    from dualanchor.methods.rain_double_loop import RAINDoubleLoop as RAINDoubleLoop
    from dualanchor.methods.recursive_extragradient import RecursiveExtragradient as RecursiveExtragradient
    from dualanchor.methods.regularised_dual_ohm import RegularisedDualOHM as RegularisedDualOHM
    from dualanchor.methods.restarted_dual_ohm import AnytimeDualOHM as AnytimeDualOHM
    from dualanchor.methods.restarted_dual_ohm import RestartedDualOHM as RestartedDualOHM
    from dualanchor.methods.seg import SEG as SEG
    from dualanchor.methods.sgda import SGDA as SGDA, DecreasingSGDA as DecreasingSGDA
    from dualanchor.methods.step_table import StepTable as StepTable, dual as dual
    from dualanchor.methods.svrg import SVRG as SVRG
    from dualanchor.oracles import AdditiveNoise as AdditiveNoise, FiniteSum as FiniteSum
    from dualanchor.oracles import Sampler as Sampler, each as each
    from dualanchor.problems import list_problems as list_problems
    from dualanchor.run import Budget as Budget, Checkpoint as Checkpoint, Draws as Draws, Steps as Steps
    from dualanchor.run import Target as Target, WallTime as WallTime, solve as solve
    from dualanchor.studies.compare import compare as compare

_NAMES = {  # by module
    "front": "root fixed_point saddle inclusion",
    "core.problem": "Problem Constants",
    "core.oracle": "Oracle Batch",
    "core.session": "Session",
    "core.streams": "Streams",
    "oracles": "AdditiveNoise FiniteSum Sampler each",
    "problems": "list_problems",
    "core.method": "Method Estimator Cost",
    "core.staged": "Staged Stage",
    "core.schedule": "Tapered Growing",
    "estimators": "Minibatch PAGE",
    "methods": "list_methods",
    "methods.dual_ohm": "DualOHM TaperedDualOHM",
    "methods.ohm": "OHM",
    "methods.sgda": "SGDA DecreasingSGDA",
    "methods.seg": "SEG",
    "methods.rain": "RAIN",
    "methods.halpern_page": "HalpernPAGE",
    "methods.halpern_vr_finite": "HalpernVRFinite",
    "methods.svrg": "SVRG",
    "methods.recursive_extragradient": "RecursiveExtragradient",
    "methods.regularised_dual_ohm": "RegularisedDualOHM",
    "methods.restarted_dual_ohm": "RestartedDualOHM AnytimeDualOHM",
    "methods.averaged": "AveragedSGDA averaged",
    "methods.mirror_prox": "MirrorProx",
    "methods.eag": "EAG",
    "methods.feg": "FEG DualFEG",
    "methods.oc_halpern": "OCHalpern DualOCHalpern",
    "methods.rain_double_loop": "RAINDoubleLoop",
    "methods.step_table": "StepTable dual",
    "run": "solve Budget Draws Steps Target WallTime Checkpoint",
    "studies.compare": "compare",
    "advise.plan": "plan",
    "advise.planned": "Plan",
    "advise.calibrate": "calibrate",
    "advise.calibration": "Calibration",
    "advise.certify": "certify best_of",
    "advise.gap": "certify_gap GapCertificate exploitability",
    "advise.infer": "infer",
    "advise.inference": "Inference",
    "checks": "check_method check_oracle",
    "core.result": "Result",
    "core.history": "History Status",
    "core.finding": "Finding Severity",
    "core.claim": "Claim ClaimKind Theorem",
    "core.certificate": "Certificate",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
_PACKAGES = {name: name for name in ("engines", "problems", "prox", "theory")}
_PACKAGES |= {"errors": "core.errors", "scipy": "integrations.scipy"}
__all__ = ["__version__", *_PACKAGES, *_MODULE_OF]

if not TYPE_CHECKING:  # else every misspelt name would have the type Any

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'dualanchor' has no attribute {name!r}")
        module = import_module(f"dualanchor.{_PACKAGES.get(name) or _MODULE_OF[name]}")
        value = globals()[name] = module if name in _PACKAGES else getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
