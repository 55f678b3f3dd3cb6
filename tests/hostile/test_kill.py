"""Killed at any moment: a run with a checkpoint goes on from there, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.hostile import victim
from tests.hostile.mutate import choose

SIGNALS = (signal.SIGKILL, signal.SIGTERM)
DEADLINE = 300  # seconds; what is waited for takes a moment, but the machine may be busy


@cache
def undisturbed(name, folder):
    return victim.run(name, folder / name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return lambda name: undisturbed(name, folder)


def kill(name, path, event, how):
    """Start a call in another process and kill it at an event; whether it had as many."""
    command = [sys.executable, victim.__file__, name, str(path), str(event)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        ready = process.stdout.readline() == b"ready\n"
        process.send_signal(how)
        process.wait(DEADLINE)
        assert process.returncode == (-how if ready else 0)
    return ready


@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
def test_killed_runs_go_on(whole, cases, tmp_path):
    killed = 0
    for seed in cases(3, 50):
        rng = np.random.default_rng(seed)
        name, path = list(victim.CALLS)[seed % len(victim.CALLS)], tmp_path / f"{seed}" / "run"
        path.parent.mkdir()
        expected, events = whole(name)
        for _ in range(rng.integers(1, 3)):
            killed += kill(name, path, int(rng.integers(1, 0.8 * events)), choose(rng, SIGNALS))
        result, _ = victim.run(name, path)
        assert [entry.name for entry in path.parent.iterdir()] == ["run"], seed
        if name.startswith("own"):
            assert result.status.ended_as_asked, seed
            assert np.isfinite(result.x).all(), seed
        else:
            assert_same(result, expected, seed)
    assert killed >= len(cases(3, 50))


def assert_same(one, other, seed):
    for name in ("x", "nit", "nfev", "draws", "success"):
        np.testing.assert_array_equal(one[name], other[name], err_msg=f"{name} of {seed}")
    assert np.array_equal(one.status, other.status), seed
    assert repr(one.certificate) == repr(other.certificate), seed
    assert repr(one.calibration) == repr(other.calibration), seed
    for name, column in vars(one.history).items():
        np.testing.assert_array_equal(column, getattr(other.history, name), err_msg=f"{name} of {seed}")


PANEL = """
id = "small"
title = "A small panel"
problem = "affine"
budget = 300

[options]
dimension = 20

[methods.s-dual-ohm.grid]
batch_size = [1, 2, 5, 10]

[methods.sgda.grid]
step_size = [0.01, 0.1, 1.0]

[methods.seg.grid]
step_size = [0.01, 0.1, 1.0]
"""


def processes(session):
    """Processes of a session, by number."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            if fields[3] == str(session) and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def mapped(session):
    """Files of shared memory that the processes of a session use and others could find."""
    found = set()
    for number in processes(session):
        try:
            lines = Path(f"/proc/{number}/maps").read_text().splitlines()
        except OSError:
            continue
        found |= {line.split(maxsplit=5)[5] for line in lines if "/dev/shm/" in line and "(deleted)" not in line}
    return found


def wait_for(condition):
    """Whether the condition holds within the deadline."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def kill_study(command, environment, out, pieces, how):
    """Start a study and kill its first process when it has workers and has stored some pieces."""
    quiet, memory = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}, set()
    with subprocess.Popen(command, env=environment, start_new_session=True, **quiet) as process:

        def far_enough():
            memory.update(mapped(process.pid))
            working = len(processes(process.pid)) > 1 and len(list(out.glob("store/*.npz"))) >= pieces
            return working or process.poll() is not None

        assert wait_for(far_enough)
        process.send_signal(how)
        process.wait(DEADLINE)
    assert wait_for(lambda: not processes(process.pid)), "a process is left"
    assert not [name for name in memory if os.path.exists(name)], "shared memory is left"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes in /proc")
def test_a_killed_study_leaves_nothing_and_goes_on(cases, hostile_full, tmp_path):
    panel, found = tmp_path / "small.toml", {}
    panel.write_text(PANEL)
    for seed in [*cases(1, 6), *([None] if hostile_full else [])]:  # the last one is not disturbed
        rng, out, temporary = np.random.default_rng(seed), tmp_path / f"out-{seed}", tmp_path / f"tmp-{seed}"
        temporary.mkdir()
        command = [sys.executable, "-m", "dualanchor", "reproduce", str(panel), "--seeds", "2", "--jobs", "2"]
        command, environment = [*command, "--out", str(out)], {**os.environ, "TMPDIR": str(temporary)}
        if seed is not None:
            kill_study(command, environment, out, int(rng.integers(0, 3)), choose(rng, SIGNALS))
            assert not list(temporary.iterdir()), "a temporary file is left"
            assert not list(out.rglob("*.part")), "a part of a file is left"
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=2 * DEADLINE)
        found[seed] = (out / "curves.csv").read_text()
    assert len(set(found.values())) == 1, found.keys()
