"""`root`, `fixed_point`, `saddle` and `inclusion`: one solver behind all four."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dualanchor.core import arrays
from dualanchor.core.errors import OracleError, unknown_name
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result
from dualanchor.engines import attach, opened
from dualanchor.front.answer import answer
from dualanchor.front.ask import ELSEWHERE, NAMES, Ask
from dualanchor.front.constrained import constrained
from dualanchor.front.shapes import Layout, as_oracle, fitting, require_arguments, saddle_oracle
from dualanchor.prox import Resolvent


def root(sample: Callable[..., Any] | Oracle, x0: Any, *, args: Sequence[Any] = (), **keywords: Any) -> Result:
    r"""Find x with F(x) = 0 from samples of F.

    Parameters
    ----------
    sample : callable or Oracle
        `sample(x, n, rng, *args)` returns the mean of n independent samples of F at x, in the shape of x, with all
        randomness from `rng`.
    x0 : array
        The start, of any shape; the result has the same, and is of the same library (NumPy, PyTorch, JAX, CuPy).
    args : tuple
        Passed on to `sample`.
    eps : float
        The residual to reach; exactly one of `eps` and `budget`. With L, sigma and D it is reached in root mean square,
        by a theorem; without them, the run stops at the first point whose upper confidence bound is at most eps.
    budget : int
        Or: samples that may be spent in all, on looking, solving and certifying.
    L : float, optional
        F is 1/L-cocoercive in expectation. Without it there is no theorem: steps are found on the way.
    L_mean : float, optional
        The mean operator is 1/L_mean-cocoercive, L_mean <= L: plans then take longer steps with larger batches.
    M, mu : float, optional
        F is M-Lipschitz and mu-strongly monotone; with mu > 0 they give L = M**2/mu.
    sigma, D : float, optional
        Root mean square noise of one sample; distance from x0 to a root, at most.
    method : str or Method
        "auto", the name of a method, or a Method.
    guarantee : bool, optional
        Whether a budget is to be spent by a theorem (tapered Dual-OHM, restarts) rather than by what works best.
    confidence : float, optional
        Of the certificate, 0.95 by default. With `eps` and known constants, the probability with which eps is to hold.
    max_samples : int, 10,000,000 by default
        With `eps`: samples that may be spent in all. Where a theorem would take more, certificates decide instead.
    certificate : bool
        Whether to set samples aside for a certificate: a tenth, at least 256 where that can be had.
    check : bool
        Whether to spend a twentieth of the samples, at most 2,000, on a look at the oracle that may warn.
    seed, reps : int
        Where all randomness comes from; independent replications.
    callback, progress, checkpoint
        As in `solve`; a callback sees x in its own shape, after every round, or after every stage where certificates
        decide. It gets x, or a Result, still without a residual, if its parameter is called `intermediate_result`.
        Each stage then has a checkpoint of its own, with its number behind the name.
    engine : {"local", "mpi", "ray"} or Engine, optional
        Where batches are computed, by several workers: `dualanchor.engines`. Their number does not change the result.

    Returns
    -------
    Result
        With `x`, `residual` (true or estimated), `certificate`, `plan`, `why`, `claim` (None with a plain budget) and
        `warnings`; print it.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, n, rng):
    ...     return x - 1 + rng.normal(size=(n, 3)).mean(axis=0)
    >>> result = da.root(sample, x0=np.zeros(3), eps=0.1, L=1.0, sigma=np.sqrt(3), D=2.0)
    >>> result.success, bool(np.linalg.norm(result.x - 1) < 0.2)
    (True, True)
    """
    layout, start = Layout.of(fitting(sample, x0, "root"), "root")
    ask = _ask("root", keywords, layout)
    oracle = as_oracle(sample, layout, args, "root: sample")
    return _shaped(layout, ask, oracle, lambda oracle: answer(ask, oracle, start))


def fixed_point(sample: Callable[..., Any] | Oracle, x0: Any, *, args: Sequence[Any] = (), **keywords: Any) -> Result:
    """Find x = T(x) from samples of a map T that is nonexpansive in mean square.

    `sample(x, n, rng, *args)` returns the mean of n samples of T at x. The residual, eps and sigma are those of
    x - T(x); L is 2 and the largest step 1. Keywords as in `root`.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, n, rng):  # a rotation about (1, 1)
    ...     turned = np.array([-(x[1] - 1), x[0] - 1]) + 1
    ...     return turned + 0.1 * rng.normal(size=2) / np.sqrt(n)
    >>> result = da.fixed_point(sample, x0=np.zeros(2), budget=20_000)
    >>> bool(np.linalg.norm(result.x - 1) < 0.1)
    True
    """
    layout, start = Layout.of(fitting(sample, x0, "fixed_point"), "fixed_point")
    ask = _ask("fixed_point", {"L": 2.0, **keywords}, layout)
    oracle = as_oracle(sample, layout, args, "fixed_point: sample", minus_identity=True)
    return _shaped(layout, ask, oracle, lambda oracle: answer(ask, oracle, start))


def saddle(
    sample_u: Callable[..., Any], sample_v: Callable[..., Any], x0: Any, *, args: Sequence[Any] = (), **keywords: Any
) -> Result:
    """Minimise over u and maximise over v from samples of the gradients.

    `sample_u(u, v, n, rng, *args)` returns the mean of n samples of the gradient in u, `sample_v` of the gradient in v
    of the same function, the one that v maximises: not minus it. Both get the same generator, one after the other.
    `x0` is the tuple (u0, v0); so is `x` in the result. Keywords as in `root`; F, made of the two, is (gradient in u,
    minus gradient in v).

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def grad_u(u, v, n, rng):
    ...     return u + v + rng.normal(size=2) / np.sqrt(n)
    >>> def grad_v(u, v, n, rng):
    ...     return u - v + rng.normal(size=2) / np.sqrt(n)
    >>> result = da.saddle(grad_u, grad_v, (np.ones(2), np.ones(2)), budget=50_000, L=2.0)
    >>> u, v = result.x
    >>> bool(np.abs(u).max() < 0.1 and np.abs(v).max() < 0.1)
    True
    """
    layout, start = Layout.of(x0, "saddle", blocks=2)
    ask = _ask("saddle", keywords, layout)
    oracle = saddle_oracle(sample_u, sample_v, layout, args)
    return _shaped(layout, ask, oracle, lambda oracle: answer(ask, oracle, start))


def inclusion(
    sample: Callable[..., Any], prox: Callable[..., Any], x0: Any, *, args: Sequence[Any] = (), **keywords: Any
) -> Result:
    """Find x with 0 in F(x) + G(x): constraints, penalties, or any monotone G with a resolvent.

    `prox(z, step)` is (I + step G)^-1 z: one of `dualanchor.prox`, or a function of a point in the shape of x0. The
    residual, eps and the certificate are those of F(x) + g with a g in G(x), the KKT residual. Needs L. Other keywords
    as in `root`.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, n, rng):
    ...     return x - np.array([2.0, 0.5]) + rng.normal(size=2) / np.sqrt(n)
    >>> result = da.inclusion(sample, da.prox.box(0, 1), np.zeros(2), budget=20_000, L=1.0)
    >>> np.round(result.x, 1)
    array([1. , 0.5])
    """
    layout, start = Layout.of(fitting(sample, x0, "inclusion"), "inclusion")
    ask = _ask("inclusion", keywords, layout)
    if ask.L is None:
        raise ask.bad("L must be given", None, "Pass L, or M and mu > 0: the step in the prox follows from it")
    require_arguments(prox, 2, "prox(z, step)", "inclusion: prox")
    oracle = as_oracle(sample, layout, args, "inclusion: sample")
    return _shaped(layout, ask, oracle, lambda oracle: constrained(ask, oracle, _flat_prox(prox, layout), start))


def _flat_prox(prox: Callable[..., Any], layout: Layout) -> Callable[..., Any]:
    if isinstance(prox, Resolvent) and len(layout.shapes[0]) == 1:
        return prox

    def rows(z: Any, step: Any) -> Any:
        points = [arrays.like(prox(layout.split(row), step), z).reshape(row.shape) for row in z]
        return arrays.namespace(z).stack(points)

    return rows


def _ask(door: str, keywords: dict[str, Any], layout: Layout) -> Ask:
    for name in keywords:
        if name not in NAMES:
            raise unknown_name(f"{door}: keyword", name, [*NAMES, "args"], ELSEWHERE)
    return Ask(door, **keywords).showing(layout.split)


def _shaped(layout: Layout, ask: Ask, oracle: Oracle, solved: Callable[[Oracle], Result]) -> Result:
    """What `solved` makes of the oracle on its engine, or leaves in an error, with x as the user has it."""
    try:
        with opened(ask.engine) as engine:
            result = solved(oracle if engine is None else attach(oracle, engine))
    except OracleError as error:
        if error.result is not None:
            error.result = replace(error.result, x=layout.split(error.result.x))
        raise
    return replace(result, x=layout.split(result.x))
