"""Damaged and forged checkpoints: each is refused in three parts, or goes on to a result that can be used."""

import copy
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from tests.hostile.mutate import choose, damaged_array, damaged_json

import dualanchor as da
from dualanchor.core.errors import CheckpointError
from dualanchor.core.files import read_arrays, write_arrays
from dualanchor.run.checkpoint import digest

PROBLEM = da.problems.affine(dimension=4, sigma=0.1)


class Ended(BaseException):
    """Ends a call abruptly."""


def sample(x, n, rng):
    return x - 1 + rng.normal(size=x.shape) / n**0.5


def stack(**options):
    """Rows that have ended, rows that have diverged and rows that go on."""
    methods = [da.DualOHM(1.0, 20), da.DualOHM(1e3, 500), da.DualOHM(1.0, 60)]
    return da.solve(PROBLEM, methods, reps=2, record=4, check=False, **options)


CALLS = {
    "rows": lambda **options: da.solve(PROBLEM, da.DualOHM(1.0, 40), reps=2, record=4, **options),
    "coins": lambda **options: da.solve(PROBLEM, da.HalpernPAGE(0.5, 5, 1), reps=3, budget=200, record=4, **options),
    "stack": stack,
    "stages": lambda **options: da.solve(PROBLEM, da.RestartedDualOHM(1.0, (9, 30), (2, 1)), reps=2, **options),
    "budget": lambda **options: da.root(sample, np.zeros(2), budget=2000, **options),
    "eps": lambda **options: da.root(sample, np.zeros(2), eps=0.3, reps=2, max_samples=20_000, **options),
    "prox": lambda **options: da.inclusion(sample, da.prox.box(0, 3), np.zeros(2), budget=2000, L=1.0, **options),
}
BARE = ("rows", "coins", "stack", "stages")


@cache
def saved(folder):
    """Honest checkpoints of every call, at its end, on its way, and before its run where that has one."""
    found = []
    for name, call in CALLS.items():
        call(checkpoint=folder / name)
        found.append((name, folder / name))
        for step in (1, 15):
            path, seen = folder / f"{name}-{step}", []

            def end(x, seen=seen, step=step):
                seen.append(1)
                if len(seen) == step:
                    raise Ended

            with suppress(Ended):
                call(checkpoint=da.Checkpoint(path, 0), callback=end)
            found += [(name, path)] * path.exists()
    return found


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("saved"))


def write(path, header, arrays, sign=True):
    unsigned = {name: value for name, value in header.items() if name != "digest"}
    write_arrays(path, {**unsigned, "digest": digest(unsigned, arrays)} if sign else header, arrays)


def forge(rng, source, path):
    """A damaged copy of a checkpoint, most of them signed anew; the digest alone would refuse the others."""
    header, arrays = read_arrays(source)
    kind = rng.integers(6)
    if kind in (0, 1):
        part = choose(rng, ["run", "notes", None])
        header = damaged_json(rng, header) if part is None else {**header, part: damaged_json(rng, header[part] or {})}
    if kind in (1, 2, 3):
        name = choose(rng, list(arrays))
        array = arrays.pop(name)
        if rng.integers(4):
            arrays[choose(rng, [name, name, name, f"history/{name}", "active/0/state/y"])] = damaged_array(rng, array)
    if kind == 4:  # an array in the place of another
        first, second = choose(rng, list(arrays)), choose(rng, list(arrays))
        arrays[first], arrays[second] = arrays[second], arrays[first]
    write(path, header, arrays, sign=rng.integers(4) > 0)
    if kind == 5:
        content = bytearray(path.read_bytes())
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(len(content))] = rng.integers(256)
        path.write_bytes(content[: rng.integers(len(content))] if rng.integers(2) else content)


@pytest.mark.filterwarnings("ignore::dualanchor.core.errors.AssumptionWarning")
def test_forged_checkpoints(checkpoints, cases, no_hang, tmp_path):
    refused = 0
    for seed in cases(40, 300):
        rng = np.random.default_rng(seed)
        name, source = choose(rng, checkpoints)
        forge(rng, source, path := tmp_path / f"forged-{seed}")
        before = path.read_bytes()
        result, error = None, None
        with no_hang():
            try:
                result = CALLS[name](checkpoint=path)
            except CheckpointError as caught:
                error = caught
        if error is not None:
            refused += 1
            assert all(error.parts), seed
            if name in BARE:  # a front door may have made anew what was found before the run
                assert path.read_bytes() == before, "a file that is refused is left alone"
        else:
            diverged = np.atleast_1d(result.status == da.Status.DIVERGED)
            x = np.reshape(result.x, (diverged.size, -1))
            assert np.isfinite(x[~diverged.ravel()]).all(), seed
            assert repr(result)
    assert refused > len(cases(40, 300)) / 2


def changed(arrays, **changes):
    return {**arrays, **{name.replace("__", "/"): value for name, value in changes.items()}}


def of_run(header, **changes):
    header = copy.deepcopy(header)
    header["run"].update(changes)
    return header


def of_group(header, **changes):
    (group,) = header["run"]["active"]
    return of_run(header, active=[{**group, **changes}])


LARGE = 1 << 62
ON_THE_WAY = {  # of two rows at step 15
    "shape of x": lambda h, a: (h, changed(a, active__0__state__x=np.ones((2, 5)))),
    "rows of x": lambda h, a: (h, changed(a, active__0__state__x=np.ones((3, 4)))),
    "dtype of x": lambda h, a: (h, changed(a, active__0__state__x=np.ones((2, 4), np.float32))),
    "text in x": lambda h, a: (h, changed(a, active__0__state__x=np.full((2, 4), "x"))),
    "NaN": lambda h, a: (h, changed(a, active__0__state__x=np.full((2, 4), np.nan))),
    "infinite": lambda h, a: (h, changed(a, active__0__state__x=np.full((2, 4), np.inf))),
    "too large to be squared": lambda h, a: (h, changed(a, active__0__state__x=np.full((2, 4), 1e300))),
    "a row twice": lambda h, a: (h, changed(a, active__0__rows=np.array([0, 0]))),
    "rows in another order": lambda h, a: (h, changed(a, active__0__rows=np.array([1, 0]))),
    "a row that is not there": lambda h, a: (h, changed(a, active__0__rows=np.array([0, 2]))),
    "a negative row": lambda h, a: (h, changed(a, active__0__rows=np.array([-1, 0]))),
    "a row missing": lambda h, a: (h, {n: v[:1] if n.startswith("active") else v for n, v in a.items()}),
    "no rows": lambda h, a: (h, {n: v[:0] if n.startswith("active") else v for n, v in a.items()}),
    "rows by fractions": lambda h, a: (h, changed(a, active__0__rows=np.array([0.0, 1.0]))),
    "a negative position": lambda h, a: (h, changed(a, active__0__position=np.array([-1, 3]))),
    "a position far away": lambda h, a: (h, changed(a, active__0__position=np.array([LARGE, 3]))),
    "negative counts": lambda h, a: (h, changed(a, active__0__evals=np.array([-5, 3]))),
    "counts by fractions": lambda h, a: (h, changed(a, active__0__draws=np.array([0.5, 3]))),
    "counts of shape (2, 1)": lambda h, a: (h, changed(a, active__0__draws=np.ones((2, 1), int))),
    "negative k": lambda h, a: (of_group(h, k=-1), a),
    "k beyond the horizon": lambda h, a: (of_group(h, k=40), a),
    "k of another type": lambda h, a: (of_group(h, k="15"), a),
    "k true": lambda h, a: (of_group(h, k=True), a),
    "k far away": lambda h, a: (of_group(h, k=LARGE), a),
    "recorded": lambda h, a: (of_group(h, recorded=-2), a),
    "diverged_by": lambda h, a: (of_group(h, diverged_by="x"), a),
    "stages": lambda h, a: (of_group(h, stages=[[0, 3]]), a),
    "no groups": lambda h, a: (of_run(h, active=[]), a),
    "groups of another type": lambda h, a: (of_run(h, active=[None]), a),
    "history of other rows": lambda h, a: (h, changed(a, history__row=a["history/row"] + 7)),
    "history with negative rows": lambda h, a: (h, changed(a, history__row=a["history/row"] - 1)),
    "history of another length": lambda h, a: (h, changed(a, history__k=a["history/k"][:-1])),
    "history by fractions": lambda h, a: (h, changed(a, history__k=a["history/k"] + 0.5)),
    "negative residuals": lambda h, a: (h, changed(a, history__residual=a["history/residual"] - 99)),
    "one array more": lambda h, a: (h, changed(a, active__0__state__more=np.ones((2, 4)))),
    "run": lambda h, a: ({**h, "run": []}, a),
    "notes": lambda h, a: ({**h, "notes": {"calibration": 3}}, a),
}


@pytest.mark.parametrize("name", ON_THE_WAY)
def test_what_cannot_be_a_run_is_refused(name, checkpoints, tmp_path):
    source = next(path for call, path in checkpoints if path.name == "rows-15")
    write(path := tmp_path / "forged", *ON_THE_WAY[name](*read_arrays(source)))
    with pytest.raises(CheckpointError, match="must hold everything that the run had written") as caught:
        CALLS["rows"](checkpoint=path)
    assert all(caught.value.parts)


AT_THE_END = {
    "status": lambda h, a: (of_run(h, status=[["INTERRUPTED", "HORIZON"]]), a),
    "unknown status": lambda h, a: (of_run(h, status=[["LUCKY", "HORIZON"]]), a),
    "statuses of other rows": lambda h, a: (of_run(h, status=[["HORIZON"]]), a),
    "NaN": lambda h, a: (h, changed(a, ended__0__state__x=np.full((2, 4), np.nan))),
    "shape of x": lambda h, a: (h, changed(a, ended__0__state__x=np.ones((2, 3)))),
    "residuals": lambda h, a: (h, changed(a, ended__0__residual=np.full(2, np.nan))),
    "residuals of other rows": lambda h, a: (h, changed(a, ended__0__residual=np.ones(3))),
    "negative k": lambda h, a: (h, changed(a, ended__0__k=np.array([-1, 3]))),
    "counts of other rows": lambda h, a: (h, changed(a, ended__0__evals=np.ones(3, int))),
    "a row twice": lambda h, a: (h, changed(a, ended__0__rows=np.array([0, 0]))),
}


@pytest.mark.parametrize("name", AT_THE_END)
def test_what_cannot_be_an_end_is_refused(name, checkpoints, tmp_path):
    source = next(path for call, path in checkpoints if path.name == "rows")
    write(path := tmp_path / "forged", *AT_THE_END[name](*read_arrays(source)))
    with pytest.raises(CheckpointError, match="must hold everything that the run had written"):
        CALLS["rows"](checkpoint=path)


def test_what_was_changed_by_hand_is_refused(checkpoints, tmp_path):
    """A number that might have been another: nothing but the digest can tell."""
    source = next(path for call, path in checkpoints if path.name == "rows-15")
    header, arrays = read_arrays(source)
    arrays["active/0/state/x"] = arrays["active/0/state/x"] + 1e-9
    write(path := tmp_path / "forged", header, arrays, sign=False)
    with pytest.raises(CheckpointError, match="changed since"):
        CALLS["rows"](checkpoint=path)


@pytest.mark.parametrize("version", ["dualanchor-checkpoint-2", "dualanchor-result-1", None, 3])
def test_other_formats_are_refused(version, checkpoints, tmp_path):
    header, arrays = read_arrays(next(path for call, path in checkpoints if path.name == "rows"))
    write(path := tmp_path / "forged", {**header, "format": version}, arrays)
    with pytest.raises(CheckpointError, match="written by a run of this version"):
        CALLS["rows"](checkpoint=path)
