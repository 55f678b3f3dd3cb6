"""Bad input gets a clear answer: the rule with the name it applies to, the value received, what to do.

One table. Each line says what is done, which kind of error it must raise, the name that the rule must mention, what
was received, and a part of the advice.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import dualanchor as da
from dualanchor.methods import make as make_method
from dualanchor.problems import make as make_problem

PROBLEM = da.problems.affine(dimension=4)
FINITE = da.problems.finite_sum_cocoercive(components=9, dimension=5, rank=4)
RANK_ONE, LINEAR = da.FiniteSum.rank_one(np.ones((10, 2))), da.FiniteSum.linear(np.ones((10, 2, 2)))
BLIND = da.Problem(da.Sampler(lambda x, n, rng: x, replayable=False), np.ones(2), constants=da.Constants(L=1.0))


def run(method: Any = "sgda", **options: Any) -> da.Result:
    return da.solve(options.pop("problem", PROBLEM), method, **{"budget": 50, **options})


class Bad(NamedTuple):
    """A line of the table."""

    what: str
    call: Callable[[], Any]
    error: type[Exception]
    name: str
    received: str
    advice: str


def lines(*rows: tuple[Any, ...]) -> list[Any]:
    return [pytest.param(Bad(*row), id=row[0]) for row in rows]


PENNIES, HALF = [[1.0, -1.0], [-1.0, 1.0]], [0.5, 0.5]


def compared(methods: Any = ("sgda",), **options: Any) -> Any:
    return da.compare(PROBLEM, methods, **{"budget": 20, "seeds": 2, "jobs": 1, **options})


STUDIES_AND_SETS = lines(
    ("no seeds", lambda: compared(seeds=[]), ValueError, "seeds", "[]", "seeds=10"),
    ("seeds twice", lambda: compared(seeds=[0, 0]), ValueError, "seeds", "[0, 0]", "seeds=10"),
    ("seeds text", lambda: compared(seeds=["a"]), TypeError, "each of seeds", "'a'", "whole number"),
    ("jobs text", lambda: compared(jobs="a"), TypeError, "jobs", "'a'", "whole number"),
    ("jobs negative", lambda: compared(jobs=-3), ValueError, "jobs", "-3", ">= 1"),
    ("methods number", lambda: compared(3), TypeError, "compare: methods", "3", "'sgda'"),
    ("methods generator", lambda: compared(m for m in ["sgda"]), TypeError, "compare: methods", "generator", "'sgda'"),
    ("u nan", lambda: da.exploitability(PENNIES, [np.nan, 1.0], HALF), ValueError, "exploitability: u", "nan", "entry"),
    ("u text", lambda: da.exploitability(PENNIES, "ab", HALF), TypeError, "exploitability: u", "'ab'", "floats"),
    (
        "A ragged",
        lambda: da.exploitability([[1], [2, 3]], HALF, HALF),
        TypeError,
        "exploitability: A",
        "[[1]",
        "floats",
    ),
    (
        "A empty",
        lambda: da.exploitability(np.ones((0, 2)), [], HALF),
        ValueError,
        "exploitability: A",
        "(0, 2)",
        "Reshape",
    ),
    ("set complex", lambda: da.prox.simplex()([1j, 1]), TypeError, "simplex", "[1j, 1]", "floats"),
    ("set text", lambda: da.prox.box(0, 1)("a"), TypeError, "box", "'a'", "floats"),
    ("tables ragged", lambda: da.FiniteSum.rank_one([[1], [2, 3]]), TypeError, "FiniteSum: u", "[[1]", "floats"),
    ("not square", lambda: da.FiniteSum.linear(np.ones((2, 3, 4))), ValueError, "matrices", "(3, 4)", "sizes"),
    ("huge", lambda: da.SGDA(10**400), ValueError, "SGDA: step_size", "1000", "positive"),
    ("ragged step", lambda: da.SGDA([[1], [2, 3]]), TypeError, "SGDA: step_size", "[[1], [2, 3]]", "number"),
    ("ragged count", lambda: da.OHM(0.1, [[1], [2, 3]]), TypeError, "OHM: horizon", "[[1], [2, 3]]", "whole number"),
    ("stages number", lambda: da.RestartedDualOHM(0.1, 3, (1,)), TypeError, "horizons", "3", "(1, 2)"),
    ("stages text", lambda: da.RestartedDualOHM(0.1, ("a",), (1,)), ValueError, "each horizon", "a", "Leave"),
    ("loops number", lambda: da.RAINDoubleLoop(0.1, 0.1, 3, (1,), (1,)), TypeError, "lengths", "3", "(1, 2)"),
    ("plan of a function", lambda: da.plan(eps=abs, L=1, D=1, sigma=1), TypeError, "plan: eps", "abs", "float"),
    (
        "empty start",
        lambda: da.root(lambda x, n, rng: x, {}, budget=300),
        ValueError,
        "root: the start",
        "{}",
        "numbers",
    ),
    ("check text", lambda: run(check="no"), TypeError, "solve: check", "'no'", "bool"),
    (
        "no candidates",
        lambda: da.best_of(PROBLEM, 3, samples=99),
        TypeError,
        "best_of: candidates",
        "3",
        "at least one",
    ),
    (
        "project",
        lambda: da.calibrate(PROBLEM, samples=99, project=3),
        TypeError,
        "calibrate: project",
        "'int'",
        "function",
    ),
    (
        "prox step",
        lambda: da.prox.check_prox(da.prox.l1(1.0), [1.0], "a"),
        TypeError,
        "check_prox: step",
        "'a'",
        "float",
    ),
    ("instance", lambda: da.FiniteSum.rank_one(np.ones((3, 2)), instance=[5]), ValueError, "instance", "5", "<= 0"),
    ("row of one", lambda: run().row(0), ValueError, "Result.row", "shape ()", "reps"),
)
STEPS = lines(
    ("step zero", lambda: da.DualOHM(0.0, 9), ValueError, "DualOHM: step_size", "0.0", "positive"),
    ("step negative", lambda: da.OHM(-1.0), ValueError, "OHM: step_size", "-1.0", "positive"),
    ("step infinite", lambda: da.SGDA(np.inf), ValueError, "SGDA: step_size", "inf", "positive"),
    ("step nan", lambda: da.SEG(np.nan), ValueError, "SEG: step_size", "nan", "positive"),
    ("step text", lambda: da.RAIN("fast"), TypeError, "RAIN: step_size", "'fast'", "positive number"),
    ("step missing", lambda: da.SGDA(None), TypeError, "SGDA: step_size", "None", "positive number"),
    ("step list", lambda: da.SGDA([0.1, 0.2]), TypeError, "SGDA: step_size", "[0.1, 0.2]", "number"),
    (
        "step list, by problem",
        lambda: da.RAIN.for_problem(PROBLEM, step_size=[0.1]),
        TypeError,
        "RAIN: step_size",
        "[0.1]",
        "positive number",
    ),
    (
        "step text, by problem",
        lambda: da.OCHalpern.for_problem(PROBLEM, step_size="a"),
        TypeError,
        "OCHalpern: step_size",
        "'a'",
        "positive number",
    ),
    ("step bool", lambda: da.SGDA(True), TypeError, "SGDA: step_size", "True", "number"),
    ("step above 2/L", lambda: run(da.DualOHM(2.1, 9)), ValueError, "DualOHM: step_size", "2.1", "check=False"),
    ("step above 2/L, OHM", lambda: run(da.OHM(2.1, 9)), ValueError, "OHM: step_size", "2.1", "check=False"),
    ("step above 2/L, PAGE", lambda: run(da.HalpernPAGE(2.1)), ValueError, "HalpernPAGE: step_size", "2.1", "Use 2"),
    (
        "step above 1/(4L)",
        lambda: run(da.HalpernVRFinite(0.3, 9), problem=FINITE),
        ValueError,
        "HalpernVRFinite: step_size",
        "0.3",
        "check=False",
    ),
    ("growth", lambda: da.RAIN(0.1, growth=-0.1), ValueError, "RAIN: growth", "-0.1", "positive"),
    ("anchor weight", lambda: da.RAIN(0.1, anchor_weight=0), ValueError, "RAIN: anchor_weight", "0", "positive"),
)

COUNTS = lines(
    ("horizon zero", lambda: da.DualOHM(1.0, 0), ValueError, "DualOHM: horizon", "0", "whole number >= 1"),
    ("horizon negative", lambda: da.OHM(1.0, -3), ValueError, "OHM: horizon", "-3", "whole number >= 1"),
    ("horizon broken", lambda: da.DualOHM(1.0, 9.5), TypeError, "DualOHM: horizon", "9.5", "whole number >= 1"),
    ("horizon text", lambda: da.DualOHM(1.0, "9"), TypeError, "DualOHM: horizon", "'9'", "whole number >= 1"),
    ("horizon list", lambda: da.DualOHM(1.0, [5, 9]), TypeError, "DualOHM: horizon", "[5, 9]", "whole number"),
    ("horizon missing", lambda: run(da.DualOHM(1.0, None)), (TypeError, ValueError), "DualOHM: horizon", "None", ""),
    ("batch zero", lambda: da.DualOHM(1.0, 9, 0), ValueError, "DualOHM: batch_size", "0", "batch_size=1 or larger"),
    ("batch negative", lambda: da.SGDA(1.0, -1), ValueError, "SGDA: batch_size", "-1", "batch_size=1 or larger"),
    ("batch broken", lambda: da.SEG(1.0, 1.5), TypeError, "SEG: batch_size", "1.5", "batch_size=1"),
    ("batch bool", lambda: da.SGDA(1.0, True), TypeError, "SGDA: batch_size", "True", "batch_size=1"),
    ("batch text", lambda: da.OHM(1.0, 9, "many"), TypeError, "OHM: batch_size", "'many'", "batch_size=1"),
    ("batch none", lambda: da.OHM(1.0, 9, None), TypeError, "OHM: batch_size", "None", "batch_size=1"),
    ("batches zero", lambda: da.OHM(1.0, 3, [1, 0]), ValueError, "OHM: batch_size", "[1, 0]", "batch_size=1"),
    ("batches empty", lambda: da.SGDA(1.0, []), (TypeError, ValueError), "SGDA: batch_size", "[]", "batch_size=1"),
    ("batches too few", lambda: da.DualOHM(1.0, 9, [1, 2]), ValueError, "DualOHM: a list", "2 sizes", "all of them"),
    (
        "batches nested",
        lambda: da.DualOHM(1.0, 3, [[1, 2], [3, 4]]),
        (TypeError, ValueError),
        "DualOHM",
        "[[1, 2], [3, 4]]",
        "",
    ),
    (
        "batches run out",
        lambda: run(da.SGDA(0.1, [1, 2, 3])),
        (TypeError, ValueError),
        "SGDA",
        "3",
        "",
    ),
    ("taper without horizon", lambda: da.SGDA(1.0, da.Tapered(3.0)), ValueError, "SGDA: batch_size", "None", "horizon"),
    ("taper without horizon, OHM", lambda: da.OHM(1.0, None, da.Tapered(3.0)), ValueError, "OHM", "None", "horizon=N"),
    (
        "taper in an estimator without horizon",
        lambda: run(da.OHM(1.0, estimator=da.Minibatch(da.Tapered(3.0)))),
        ValueError,
        "batch_size",
        "None",
        "horizon",
    ),
    ("estimator", lambda: run(da.OHM(1.0, 9, estimator="page")), TypeError, "OHM: estimator", "'page'", ""),
    (
        "estimator batch",
        lambda: run(da.OHM(1.0, 9, estimator=da.Minibatch(0))),
        ValueError,
        "batch_size",
        "0",
        "larger",
    ),
    ("taper zero", lambda: da.Tapered(0.0), ValueError, "Tapered: C", "0.0", "positive number for C"),
    ("taper nan", lambda: da.Tapered(np.nan), ValueError, "Tapered: C", "nan", "C"),
    ("taper infinite", lambda: da.Tapered(np.inf), ValueError, "Tapered: C", "inf", "C"),
    ("growing negative", lambda: da.Growing(-1.0), ValueError, "Growing: c", "-1.0", "positive number for c"),
    ("growing infinite", lambda: da.Growing(np.inf), ValueError, "Growing: c", "inf", "c"),
    ("big batch", lambda: da.HalpernPAGE(1.0, 0), ValueError, "HalpernPAGE: big_batch", "0", "whole number >= 1"),
    ("small batch", lambda: da.PAGE(3, 0), ValueError, "PAGE: small_batch", "0", "number >= 1"),
    ("components", lambda: da.HalpernVRFinite(0.1, 0), ValueError, "HalpernVRFinite: components", "0", ">= 1"),
    (
        "components of another",
        lambda: run(da.HalpernVRFinite(0.1, 8), problem=FINITE),
        ValueError,
        "HalpernVRFinite: components",
        "8",
        "components=9",
    ),
)

RUNS = lines(
    ("budget zero", lambda: run(budget=0), ValueError, "solve: budget", "0", "whole number >= 1"),
    ("budget broken", lambda: run(budget=10.5), TypeError, "solve: budget", "10.5", "whole number >= 1"),
    ("budget float", lambda: run(budget=1000.5), TypeError, "solve: budget", "1000.5", "whole number >= 1"),
    ("budget text", lambda: run(budget="9"), TypeError, "solve: budget", "'9'", "whole number >= 1"),
    ("budget bool", lambda: run(budget=True), TypeError, "solve: budget", "True", "whole number >= 1"),
    ("seed negative", lambda: run(seed=-1), ValueError, "solve: seed", "-1", "whole number >= 0"),
    ("seed broken", lambda: run(seed=0.5), TypeError, "solve: seed", "0.5", "whole number >= 0"),
    ("reps zero", lambda: run(reps=0), ValueError, "solve: reps", "0", "whole number >= 1"),
    ("reps broken", lambda: run(reps=2.5), TypeError, "solve: reps", "2.5", "whole number >= 1"),
    ("reps empty", lambda: run(reps=[]), ValueError, "solve: reps", "[]", "reps="),
    ("reps twice", lambda: run(reps=[1, 1]), ValueError, "solve: reps", "[1, 1]", "reps="),
    ("reps negative", lambda: run(reps=[0, -1]), ValueError, "reps", "-1", "whole number >= 0"),
    ("batch above budget", lambda: run(da.SGDA(0.1, 51)), ValueError, "SGDA", "51", "smaller batch or a larger budget"),
    (
        "batch above budget, default",
        lambda: make_method("s-dual-ohm", PROBLEM, 50, {"batch_size": 51}),
        ValueError,
        "DualOHM: batch_size",
        "51",
        "smaller batch or a larger budget",
    ),
    ("fresh batch above budget", lambda: run(da.HalpernPAGE(1.0, 51)), ValueError, "HalpernPAGE", "51", "smaller"),
    ("two calls above budget", lambda: run(da.SEG(0.1, 26)), ValueError, "SEG", "52", "smaller batch"),
    (
        "full pass above budget",
        lambda: run("halpern-vr-finite", problem=FINITE, budget=8),
        ValueError,
        "",
        "9",
        "larger",
    ),
    ("no end", lambda: run(budget=None), ValueError, "SGDA has no horizon", "neither budget nor stop", "Steps(k)"),
    ("no horizon", lambda: run("s-dual-ohm", budget=None), ValueError, "s-dual-ohm: horizon", "None", "budget"),
    ("no step", lambda: run(problem=da.Problem(da.AdditiveNoise(abs), [1.0])), ValueError, "step_size", "", "L="),
    ("stop", lambda: run(stop=5), TypeError, "solve: stop", "5", "Steps(k)"),
    ("steps negative", lambda: da.Steps(-1), ValueError, "Steps: count", "-1", "whole number >= 0"),
    ("steps broken", lambda: da.Steps(1.5), TypeError, "Steps: count", "1.5", "whole number"),
    ("budget rule", lambda: da.Budget(0), ValueError, "Budget: budget", "0", "whole number >= 1"),
    ("draws rule", lambda: da.Draws(0), ValueError, "Draws: samples", "0", "whole number >= 1"),
    ("target zero", lambda: da.Target(0.0), ValueError, "Target: eps", "0.0", "eps > 0"),
    ("target nan", lambda: da.Target(np.nan), ValueError, "Target: eps", "nan", "eps > 0"),
    ("target text", lambda: da.Target("low"), (TypeError, ValueError), "Target: eps", "'low'", "eps > 0"),
    ("target seldom", lambda: da.Target(1.0, 0), ValueError, "Target: every", "0", "whole number >= 1"),
    ("time negative", lambda: da.WallTime(-1), ValueError, "WallTime: seconds", "-1", "seconds"),
    ("time nan", lambda: da.WallTime(np.nan), ValueError, "WallTime: seconds", "nan", "seconds"),
    ("rule and number", lambda: da.Steps(3) | 4, TypeError, "stopping rule", "4", "Budget(q)"),
    (
        "blind target",
        lambda: run(da.SGDA(0.1), problem=BLIND, stop=da.Target(1.0)),
        ValueError,
        "Target",
        "sampled",
        "Use",
    ),
    ("record", lambda: run(record="some"), ValueError, "record", "'some'", "record='all'"),
    ("record negative", lambda: run(record=-2), ValueError, "record", "-2", "record=0"),
    ("problem", lambda: da.solve("affine", budget=9), TypeError, "solve: problem", "'str'", "dualanchor.problems"),
    ("method class", lambda: run(da.SGDA), TypeError, "solve: method", "SGDA", "DualOHM("),
    ("methods none", lambda: run([]), TypeError, "solve: method", "[]", "DualOHM("),
    ("methods names", lambda: run(["sgda"]), TypeError, "solve: method", "['sgda']", "DualOHM("),
    ("methods mixed", lambda: run([da.SGDA(0.1), da.SEG(0.1)]), TypeError, "one class", "SEG, SGDA", "by itself"),
    ("folder", lambda: da.Checkpoint("/nowhere/run"), ValueError, "Checkpoint: path", "/nowhere/run", "Create"),
    ("seconds text", lambda: da.Checkpoint("run", "often"), TypeError, "Checkpoint: seconds", "'often'", "seconds=30"),
    ("checkpoint", lambda: run(checkpoint=3), TypeError, "heckpoint", "3", ""),
    ("progress", lambda: run(progress=3), TypeError, "solve: progress", "3", "True"),
    ("callback", lambda: run(callback=3), TypeError, "callback", "3", "function"),
    ("seconds", lambda: da.Checkpoint("run", -1), ValueError, "Checkpoint: seconds", "-1", "seconds=30"),
)

POINTS = lines(
    ("x0 short", lambda: run(x0=np.ones(3)), ValueError, "solve: x0", "shape (3,)", "Reshape"),
    ("x0 number", lambda: run(x0=1.0), ValueError, "solve: x0", "shape ()", "Reshape"),
    ("x0 rows", lambda: run(x0=np.ones((2, 4)), reps=3), ValueError, "solve: x0", "shape (2, 4)", "Reshape"),
    ("x0 nan", lambda: run(x0=[1.0, np.nan, 0, 0]), ValueError, "solve: x0", "nan at index 1", "numbers"),
    ("x0 infinite", lambda: run(x0=[1.0, 0, 0, np.inf]), ValueError, "solve: x0", "inf at index 3", "numbers"),
    ("x0 complex", lambda: run(x0=np.ones(4, complex)), TypeError, "solve: x0", "dtype complex128", "floats"),
    ("x0 text", lambda: run(x0="here"), TypeError, "solve: x0", "<U4", "floats"),
    ("x0 objects", lambda: run(x0=[None] * 4), TypeError, "solve: x0", "'list'", "floats"),
    ("x0 ragged", lambda: run(x0=[[1, 2], [3]]), TypeError, "solve: x0", "'list'", "floats"),
    ("start nan", lambda: da.Problem(da.AdditiveNoise(abs), [np.nan]), ValueError, "Problem: x0", "nan", "numbers"),
    (
        "start square",
        lambda: da.Problem(da.AdditiveNoise(abs), np.eye(2)),
        ValueError,
        "Problem: x0",
        "(2, 2)",
        "Reshape",
    ),
    ("start empty", lambda: da.Problem(da.AdditiveNoise(abs), []), ValueError, "Problem: x0", "shape (0,)", "Reshape"),
    (
        "root short",
        lambda: da.Problem(da.AdditiveNoise(abs), [1.0, 1.0], root=[0.0]),
        ValueError,
        "Problem: root",
        "shape (1,)",
        "Reshape",
    ),
    ("oracle", lambda: da.Problem(abs, [1.0]), TypeError, "Problem: oracle", "builtin_function", "Wrap a function"),
    ("constants", lambda: da.Constants(L=-2), ValueError, "Constants: L", "-2", "leave L out"),
    ("constants text", lambda: da.Constants(L="5"), TypeError, "Constants: L", "'5'", "Use a float"),
    ("constants list", lambda: da.Constants(sigma=[1.0]), TypeError, "Constants: sigma", "[1.0]", "Use a float"),
    ("constants bool", lambda: da.Constants(mu=True), TypeError, "Constants: mu", "True", "Use a float"),
    ("start long", lambda: da.Problem(RANK_ONE, np.ones(3)), ValueError, "Problem: x0 must have 2", "3", "length 2"),
    ("root long", lambda: da.root(LINEAR, np.ones(3), budget=300), ValueError, "root: the start", "3", "length 2"),
    ("root short", lambda: da.root(RANK_ONE, [1.0], budget=300), ValueError, "root: the start", "1", "length 2"),
    ("fixed point", lambda: da.fixed_point(LINEAR, [1.0], budget=300), ValueError, "fixed_point:", "1", "length 2"),
    ("certify long", lambda: da.certify(RANK_ONE, np.ones(3), samples=64), ValueError, "certify: x", "3", "length 2"),
    ("certify rows", lambda: da.certify(LINEAR, np.ones((4, 3)), samples=64), ValueError, "certify: x", "3", "length"),
    ("calibrate", lambda: da.calibrate(RANK_ONE, np.ones(3), samples=64), ValueError, "calibrate: x", "3", "length 2"),
    ("line", lambda: da.root(da.FiniteSum.rank_one([[1.0]]), [0.0, 0.0], eps=1), ValueError, "1 coordinate,", "2", "1"),
    ("constants order", lambda: da.Constants(L=1, mu=2), ValueError, "Constants: mu", "mu = 2, L = 1", "Check"),
)

ORACLES = lines(
    ("operator", lambda: da.AdditiveNoise(3), TypeError, "AdditiveNoise: operator", "'int'", "Pass a function"),
    ("sigma", lambda: da.AdditiveNoise(abs, -1.0), ValueError, "AdditiveNoise: sigma", "-1.0", "0 for no noise"),
    ("sigma nan", lambda: da.AdditiveNoise(abs, np.nan), ValueError, "AdditiveNoise: sigma", "nan", "0 for no noise"),
    (
        "sigma text",
        lambda: da.AdditiveNoise(abs, "a"),
        (TypeError, ValueError),
        "AdditiveNoise: sigma",
        "a",
        "no noise",
    ),
    ("noise", lambda: da.AdditiveNoise(abs, noise=3), TypeError, "AdditiveNoise: noise", "'int'", "Pass a function"),
    ("sampler", lambda: da.Sampler(None), TypeError, "Sampler: sample", "'NoneType'", "Pass a function"),
    ("single", lambda: da.Sampler.from_single(3), TypeError, "each: sample", "'int'", "Pass a function"),
    ("shards", lambda: da.Sampler(lambda x, n, rng: x, shards=0), ValueError, "Sampler: shards", "0", ">= 1"),
    (
        "sampler without return",
        lambda: da.certify(lambda x, n, rng: None, [0.0, 0.0], samples=64),
        da.errors.OracleError,
        "certify: sample must return real numbers",
        "None",
        "Return a float array",
    ),
    (
        "all rows without return",
        lambda: da.certify(da.Sampler(lambda x, n, rngs: None, vectorized=True), [0.0, 0.0], samples=64),
        da.errors.OracleError,
        "Sampler: sample must return one vector",
        "None for x of shape (1, 2)",
        "Return the means",
    ),
    (
        "door without return",
        lambda: da.root(lambda x, n, rng: None, [0.0, 0.0], budget=300, L=1.0),
        da.errors.OracleError,
        "root: sample must return real numbers",
        "None",
        "Return a float array",
    ),
    (
        "dict",
        lambda: da.certify(lambda x, n, rng: {}, [0.0, 0.0], samples=64),
        da.errors.OracleError,
        "certify: sample must return real numbers",
        "a dict",
        "Return a float array",
    ),
    (
        "sampler of another length",
        lambda: da.certify(lambda x, n, rng: np.zeros(3), [0.0, 0.0], samples=64),
        da.errors.OracleError,
        "certify: sample must return the mean of n samples, of the shape of x, or n samples",
        "shape (3,) for x of shape (2,) and n = ",
        "Return the mean",
    ),
    ("component", lambda: da.FiniteSum(3, 4), TypeError, "FiniteSum: component", "'int'", "Pass a function"),
    ("n", lambda: da.FiniteSum(abs, 0), ValueError, "FiniteSum: n", "0", "number of components"),
    ("n broken", lambda: da.FiniteSum(abs, 2.5), TypeError, "FiniteSum: n", "2.5", "number of components"),
    (
        "data",
        lambda: da.FiniteSum.from_data((np.ones(2), np.ones(3)), abs),
        ValueError,
        "arrays",
        "[2, 3] rows",
        "same",
    ),
    ("vectors", lambda: da.FiniteSum.rank_one(np.ones(3)), ValueError, "FiniteSum: u", "shape (3,)", "Reshape"),
    ("vectors text", lambda: da.FiniteSum.rank_one([["a"]]), TypeError, "FiniteSum: u", "[['a']]", "floats"),
    (
        "targets",
        lambda: da.FiniteSum.rank_one(np.ones((3, 2)), targets=np.ones(2)),
        ValueError,
        "targets",
        "(1, 2)",
        "sizes",
    ),
    (
        "partner",
        lambda: da.FiniteSum.rank_one(np.ones((3, 2)), np.ones((2, 2))),
        ValueError,
        "FiniteSum: v",
        "2, 2",
        "sizes",
    ),
    ("matrices", lambda: da.FiniteSum.linear(np.ones((2, 2))), ValueError, "FiniteSum: matrices", "(2, 2)", "Reshape"),
    (
        "offsets",
        lambda: da.FiniteSum.linear(np.ones((3, 2, 2)), np.ones((2, 2))),
        ValueError,
        "offsets",
        "(1, 2, 2)",
        "sizes",
    ),
    (
        "no full pass",
        lambda: run(da.HalpernVRFinite(0.1, 9)),
        da.errors.CapabilityError,
        "finite sum",
        "an oracle that is not a finite sum",
        "s-dual-ohm",
    ),
    (
        "no full pass, by name",
        lambda: run("halpern-vr-finite"),
        da.errors.CapabilityError,
        "finite sum",
        "problem 'affine'",
        "s-dual-ohm",
    ),
    (
        "no replay",
        lambda: run(da.HalpernPAGE(0.1), problem=BLIND),
        da.errors.CapabilityError,
        "HalpernPAGE",
        "not replayable",
        "s-dual-ohm",
    ),
    (
        "no replay, estimator",
        lambda: run(da.DualOHM(0.1, 9, estimator=da.PAGE()), problem=BLIND),
        da.errors.CapabilityError,
        "DualOHM",
        "not replayable",
        "s-dual-ohm",
    ),
)

NAMES = lines(
    ("method name", lambda: run("halpern-pag"), ValueError, "method", "'halpern-pag'", "Did you mean halpern-page"),
    ("method like none", lambda: run("zzzz"), ValueError, "method", "'zzzz'", "Choose one of anytime-dual-ohm"),
    ("problem name", lambda: make_problem("afine", {}), ValueError, "problem", "'afine'", "Did you mean affine"),
    (
        "option",
        lambda: make_problem("affine", {"dimnsion": 2}),
        ValueError,
        "affine: option",
        "'dimnsion'",
        "dimension",
    ),
    (
        "parameter",
        lambda: make_method("sgda", PROBLEM, 9, {"stepsize": 1}),
        ValueError,
        "sgda: parameter",
        "'stepsize'",
        "step_size",
    ),
    ("dimension", lambda: da.problems.affine(dimension=0), ValueError, "affine: dimension", "0", "dimension"),
    ("dimension broken", lambda: da.problems.affine(dimension=2.5), TypeError, "affine: dimension", "2.5", "number"),
    ("noise level", lambda: da.problems.affine(sigma=-1.0), ValueError, "affine: sigma", "-1.0", "sigma"),
    ("noise level nan", lambda: da.problems.affine(sigma=np.nan), ValueError, "affine: sigma", "nan", "sigma"),
    ("noise level text", lambda: da.problems.affine(sigma="a"), TypeError, "affine: sigma", "'a'", "number"),
    ("rotation", lambda: da.problems.affine(rotation=2.0), ValueError, "affine", "rotation = 2.0", "satisfy all three"),
    ("odd", lambda: da.problems.huber_minimax(dimension=5), ValueError, "huber-minimax: dimension", "5", "even"),
    ("mu", lambda: da.problems.huber_minimax(mu=0.0), ValueError, "huber-minimax: mu", "mu = 0.0", "paper"),
    ("rank", lambda: da.problems.finite_sum_cocoercive(dimension=3, rank=4), ValueError, "rank", "4", "smaller rank"),
)


THREADS = da.engines.Local(2, "threads")
ENGINES = lines(
    ("attach number", lambda: THREADS.attach(3), TypeError, "engine: what is attached", "type int", "Sampler"),
    ("attach problem", lambda: THREADS.attach(PROBLEM), TypeError, "engine: what", "Affine", "solve(problem, engine"),
    ("attach single", lambda: THREADS.attach(lambda x, rng: x), TypeError, "da.each", "(x, rng)", "its arguments"),
    (
        "attach noise",
        lambda: THREADS.attach(da.AdditiveNoise(abs)),
        TypeError,
        "cut into",
        "Additive",
        "additive noise",
    ),
)


@pytest.mark.parametrize("bad", [*STUDIES_AND_SETS, *STEPS, *COUNTS, *RUNS, *POINTS, *ORACLES, *NAMES, *ENGINES])
def test_a_message_has_its_three_parts(bad):
    with pytest.raises(bad.error) as caught:
        bad.call()
    assert isinstance(caught.value, da.errors.DualAnchorError), "the library's own error, not one from deep inside"
    message = str(caught.value)
    parts = re.fullmatch(r"(?P<rule>.+?)\. Got (?P<received>.+?)\. (?P<advice>[A-Z].+[.?])", message, re.DOTALL)
    assert parts, message
    assert bad.name in parts["rule"]
    assert bad.received in parts["received"], message
    assert bad.advice in parts["advice"]


def failing(after, how):
    """A problem whose oracle goes wrong in one row once it has been evaluated so often, and the switch for it."""
    calls, switch = [], {"on": True}

    def sample(x, n, rng):
        calls.append(1)
        if switch["on"] and len(calls) > after:
            return how(x)
        return x + rng.normal(size=x.size)

    return da.Problem(da.Sampler(sample, replayable=True), np.ones(3), constants=da.Constants(L=1.0)), switch


def raises(x):
    raise RuntimeError("sensor is offline")


WRONG = {
    "raises": (raises, "sensor is offline"),
    "nan": (lambda x: x * np.nan, "NaN"),
    "shape": (lambda x: x[:2], "shape (2,)"),
    "dtype": (lambda x: x * 1j, "complex"),
}


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("after", [0, 7, 40])
def test_an_oracle_that_goes_wrong_is_located_and_the_run_goes_on_when_it_is_fixed(how, after, tmp_path):
    function, received = WRONG[how]
    problem, switch = failing(after, function)
    options = {"budget": 60, "reps": 3, "checkpoint": tmp_path / "run"}
    with pytest.raises(da.errors.OracleError) as caught:
        da.solve(problem, da.SGDA(0.1), **options)
    error = caught.value
    assert error.iteration == after // 3
    assert f"at iteration {error.iteration}, row {error.row}" in str(error)
    assert received in str(error)
    assert re.fullmatch(r".+\. Got .+ at iteration \d+, row \d(, \|x\| = \S+)?\. [A-Z].+\.", str(error), re.DOTALL)
    assert (error.result.status == da.Status.FAILED).all()
    assert (error.result.nit == error.iteration).all()
    assert not error.result.success.any()
    assert np.isfinite(error.result.x).all()
    switch["on"] = False
    healthy, _ = failing(10**9, function)
    whole = da.solve(healthy, da.SGDA(0.1), budget=60, reps=3)
    resumed = da.solve(problem, da.SGDA(0.1), **options)
    np.testing.assert_array_equal(resumed.x, whole.x)
    np.testing.assert_array_equal(resumed.nfev, whole.nfev)


def test_the_row_named_is_the_row_of_the_result_after_others_have_ended():
    """Configuration 1, replication 1 fails at a point that only it reaches; configuration 0 has ended by then."""

    def sample(x, n, rng):
        if x[0] < 0.4 and x[1] == 7.0:
            raise RuntimeError("out of range")
        return np.array([1.0, 0.0])

    problem = da.Problem(da.Sampler(sample, replayable=True), np.zeros(2), constants=da.Constants(L=1.0))
    methods = [da.DualOHM(0.1, 4), da.DualOHM(0.1, 40), da.DualOHM(0.1, 3)]
    with pytest.raises(da.errors.OracleError, match=r"row 3 \(configuration 1, replication 1\)") as caught:
        da.solve(problem, methods, reps=2, x0=[[1.0, 0.0], [1.0, 7.0]])
    assert caught.value.row == 3
    statuses = caught.value.result.status
    assert statuses[0].tolist() == [da.Status.HORIZON] * 2
    assert statuses[1].tolist() == [da.Status.FAILED] * 2
    assert statuses[2].tolist() == [da.Status.HORIZON] * 2
    assert caught.value.result.nit[1, 1] == caught.value.iteration


def test_coins_do_not_confuse_the_row():
    """With PAGE rows are evaluated in two groups; the row named is still that of the result."""

    def sample(x, n, rng):
        if x[1] == 7.0 and x[0] < 0.9:
            raise RuntimeError("out of range")
        return np.array([1.0, 0.0])

    start = np.tile([1.0, 0.0], (5, 1))
    start[3, 1] = 7.0
    for seed in range(5):
        problem = da.Problem(da.Sampler(sample, replayable=True), np.zeros(2), constants=da.Constants(L=1.0))
        with pytest.raises(da.errors.OracleError, match="row 3") as caught:
            da.solve(problem, da.HalpernPAGE(0.1, 4, 2), budget=500, reps=5, x0=start, seed=seed)
        assert caught.value.row == 3


def test_errors_can_be_caught_as_what_they_are():
    errors = da.errors
    assert issubclass(errors.ArgumentError, ValueError)
    assert issubclass(errors.ArgumentTypeError, TypeError)
    assert issubclass(errors.UnknownNameError, ValueError)
    assert issubclass(errors.CapabilityError, TypeError)
    assert issubclass(errors.CheckpointError, ValueError)
    assert issubclass(errors.MissingExtraError, ImportError)
    assert issubclass(errors.OracleError, RuntimeError)
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, Exception) and not issubclass(error, Warning):
            assert issubclass(error, errors.DualAnchorError), name
            assert error.__doc__, name


@pytest.mark.parametrize(("horizon", "words"), [(100, "99 steps exist"), (2, "1 step exists"), (1, "no steps exist")])
def test_a_step_past_the_horizon_names_how_many_there_are(horizon, words):
    method = da.DualOHM(1.0, horizon)
    with pytest.raises(da.errors.HorizonError, match=f"DualOHM: {words} for horizon N = {horizon}. Got k = {horizon}"):
        method.step(horizon, method.init(np.zeros((1, 2))), None)


def test_nothing_known_of_strong_monotonicity_is_zero():
    assert da.Constants(L=1.0, mu=None).mu == 0.0
    assert da.root(lambda x, n, rng: x, [1.0], budget=300, L=1.0, mu=None).success


def test_a_missing_package_can_be_had_by_name_or_in_a_checkout():
    error = da.errors.missing_extra("ray", "ray", "engine='ray'")
    assert str(error).endswith("Install it with: pip install 'dualanchor[ray]', or '.[ray]' in a checkout.")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (da.AdditiveNoise(abs, 0.1), "AdditiveNoise(sigma=0.1)"),
        (da.AdditiveNoise(abs, noise=lambda n, rng: 0.0), "AdditiveNoise(noise=...)"),
        (da.FiniteSum(lambda x, i: x, 7), "FiniteSum(n=7)"),
        (RANK_ONE, "FiniteSum(n=10, d=2)"),
        (THREADS, "Local(workers=2, kind='threads')"),
        (da.engines.Local(3, "threads", timeout=60), "Local(workers=3, kind='threads', timeout=60)"),
        (THREADS.attach(RANK_ONE), "FiniteSum(n=10, d=2) on Local(workers=2, kind='threads')"),
        (
            da.engines.ShardedData(lambda x, a: x, lambda first, end: np.ones(end - first), n=8, shards=2),
            "ShardedData(n=8, shards=2)",
        ),
    ],
)
def test_the_text_of_oracles_and_engines_is_short(made, text):
    assert repr(made) == text


def test_the_text_of_a_sampler_has_the_name_of_its_function():
    def sample(x, n, rngs):
        return x

    class Simulator:
        def __call__(self, x, n, rng):
            return x

    assert repr(da.Sampler(sample)) == "Sampler(sample)"
    assert repr(da.Sampler(sample, vectorized=True, shards=4)) == "Sampler(sample, vectorized=True, shards=4)"
    assert repr(da.Sampler(Simulator())) == "Sampler(Simulator)"
