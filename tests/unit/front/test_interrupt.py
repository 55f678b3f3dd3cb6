"""Ctrl-C: what there is so far comes back, and a checkpoint goes on from there."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, signal, sys, time
import numpy as np, dualanchor as da

path, keywords = sys.argv[1], json.loads(sys.argv[2])

def sampler(interrupt_at):
    calls = 0
    def sample(x, n, rng):
        nonlocal calls
        calls += 1
        if calls == interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # the signal may take a moment to arrive
        return x - 1 + rng.normal(size=(2, 2)) / np.sqrt(n)
    return sample

def run(interrupt_at, checkpoint):
    result = da.root(sampler(interrupt_at), np.zeros((2, 2)), L=1.0, checkpoint=checkpoint, **keywords)
    spent = np.atleast_1d(result.nfev).tolist()
    return {"status": {s.name for s in np.atleast_1d(result.status)}.pop(), "x": np.asarray(result.x).tolist(),
            "nfev": spent, "success": bool(np.all(result.success)), "claim": str(result.claim),
            "by_theorem": result.claim is not None and result.claim.by_theorem,
            "certified": result.certificate is not None, "shape": np.shape(result.x), "text": repr(result)}

cut = run(int(sys.argv[3]), path)
files = sorted(os.listdir(os.path.dirname(path)))
print(json.dumps([cut, files, run(0, path), run(0, None)]))
"""

ROUTES = {
    "budget": ({"budget": 1500}, 500),
    "guarantee": ({"budget": 5000, "guarantee": True, "sigma": 3.0, "D": 3.0}, 225),
    "eps, in the first stage": ({"eps": 0.3}, 400),
    "eps, later": ({"eps": 0.1}, 1500),
    "eps, in a certificate": ({"eps": 0.1, "check": False}, 280),
    "eps, replications": ({"eps": 0.3, "reps": 3}, 900),
    "boosted": ({"eps": 0.5, "sigma": 3.0, "D": 3.0, "confidence": 0.99, "check": False}, 30),
}


SLOW = ("eps, replications", "boosted", "eps, in the first stage")


@pytest.mark.parametrize(
    "route", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in ROUTES]
)
def test_interrupted_and_taken_up(route, tmp_path):
    keywords, when = ROUTES[route]
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), json.dumps(keywords), str(when)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    cut, files, resumed, whole = json.loads(done.stdout)
    assert cut["status"] == "INTERRUPTED"
    assert not cut["success"]
    assert cut["shape"][-2:] == [2, 2]
    assert sum(cut["nfev"]) < sum(whole["nfev"])
    assert not cut["by_theorem"]
    assert "interrupted by the user" in cut["text"]
    assert files
    assert resumed["x"] == whole["x"]
    assert resumed["nfev"] == whole["nfev"]
    assert resumed["claim"] == whole["claim"]
    assert whole["success"]
