"""A claim cannot change when a sentence changes."""

import warnings

import numpy as np
import pytest
from tests.unit.front.samplers import Counted

import dualanchor as da
from dualanchor.core import certificate, claim, errors, finding
from dualanchor.core.history import Status

KNOWN = {"L": 1.0, "sigma": 0.3, "D": 2.0}
RUNS = {
    "not monotone": (lambda x: -x, {"budget": 1600, **KNOWN, "guarantee": True}),
    "not monotone, planned": (lambda x: -x, {"eps": 0.05, **KNOWN}),
    "sigma too small": (lambda x: x - 1, {"eps": 0.05, "L": 1.0, "sigma": 0.02, "D": 2.0}),
    "planned": (lambda x: x - 1, {"eps": 0.1, **KNOWN}),
    "with probability": (lambda x: x - 1, {"eps": 0.2, **KNOWN, "confidence": 0.99}),
    "budget": (lambda x: x - 1, {"budget": 1600}),
    "until certified": (lambda x: x - 1, {"eps": 0.1}),
    "not reached": (lambda x: x - 1, {"eps": 1e-4, "max_samples": 2000}),
    "stalled": (lambda x: 1 + 0 * x, {"eps": 0.1, "L": 1.0, "max_samples": 20_000}),
    "turning": (lambda x: np.array([x[1], -x[0]]), {"budget": 1600}),
    "own method": (lambda x: x - 1, {"eps": 0.3, "method": da.DualOHM(1.0, horizon=50, batch_size=40)}),
}


def data(result, tmp_path):
    """Everything that is decided, nothing that is only printed."""
    made, loaded = result.claim, da.Result.load(result.save(tmp_path / "result"))
    assert (loaded.findings, loaded.claim, loaded.status) == (result.findings, made, result.status)
    basis = None if made is None or made.theorem is None else made.theorem.id
    return {
        "claim": None if made is None else (made.kind, made.bound, made.confidence, basis),
        "status": result.status.name,
        "success": result.success,
        "codes": [(one.code, one.severity) for one in result.findings],
        "method": result.method["id"],
        "spent": (result.nit, result.nfev, result.draws),
        "x": np.asarray(result.x).tolist(),
        "calibration": result.calibration and [one.code for one in result.calibration.findings],
        "certificate": result.certificate and [one.code for one in result.certificate.findings],
    }


def wordless(monkeypatch):
    """Every sentence that the library can make is now x."""
    monkeypatch.setattr(finding, "CODES", {code: one._replace(text="x") for code, one in finding.CODES.items()})
    monkeypatch.setattr(claim, "CLAIM_TEXTS", dict.fromkeys(claim.CLAIM_TEXTS, lambda _: "x"))
    monkeypatch.setattr(certificate, "RULE_TEXTS", dict.fromkeys(certificate.RULE_TEXTS, "x"))
    monkeypatch.setattr(claim.Theorem, "__str__", lambda _: "x")
    monkeypatch.setattr(errors, "explain", lambda *parts: "x")
    for status in Status:
        monkeypatch.setattr(status, "_value_", "x")
    for cls in (da.Finding, da.Claim, da.Certificate, da.Plan, da.Calibration, da.Result):
        monkeypatch.setattr(cls, "__repr__", lambda _: "x")
    monkeypatch.setattr(finding.Finding, "text", "x")
    monkeypatch.setattr(certificate.Certificate, "text", "x")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_no_decision_reads_a_sentence(name, monkeypatch, tmp_path):
    F, keywords = RUNS[name]

    def run():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.AssumptionWarning)
            return da.root(Counted(F), np.zeros(2) + (name in ("turning", "not monotone")), **keywords)

    before = data(run(), tmp_path)
    wordless(monkeypatch)
    assert data(run(), tmp_path) == before


@pytest.mark.slow
def test_the_runs_differ_in_what_they_claim():
    """The comparison would be empty if all runs claimed the same."""
    kinds = set()
    for F, keywords in RUNS.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.AssumptionWarning)
            made = da.root(Counted(F), np.ones(2) / 2, **keywords).claim
        kinds.add(None if made is None else made.kind)
    assert kinds == {None, *da.ClaimKind}
