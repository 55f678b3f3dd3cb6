"""`root`, `fixed_point`, `saddle` and `inclusion`: one solver behind all four."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dualanchor.core import check as require
from dualanchor.core.errors import OracleError
from dualanchor.core.method import Method
from dualanchor.core.oracle import Oracle
from dualanchor.core.result import Result
from dualanchor.core.types import Array
from dualanchor.engines import Engine, attach, opened
from dualanchor.front.autograd import differentiated
from dualanchor.front.before import InterruptedBeforeRun, result_at_start, with_saver
from dualanchor.front.composite import solve_composite
from dualanchor.front.constraints import flat_prox
from dualanchor.front.judge import unless_sign_is_wrong
from dualanchor.front.layout import Layout, on_host, saddle_sampled, sampled
from dualanchor.front.request import Request
from dualanchor.front.route import Route
from dualanchor.run.checkpoint import Checkpoint

Sample = Callable[..., Any]
Progress = Callable[..., Any] | bool | None


def root(
    sample: Sample | Oracle, x0: Any, *, args: Sequence[Any] = (),
    prox: Callable[..., Any] | None = None, bounds: Any = None,
    eps: float | None = None, budget: int | None = None, max_samples: int | None = None,
    L: float | None = None, L_mean: float | None = None, M: float | None = None, mu: float = 0.0,
    sigma: float | None = None, D: float | None = None, affine: bool = False, confidence: float | None = None,
    guarantee: bool | None = None, batch: int | None = None, max_rounds: int | None = None,
    method: str | Method = "auto", certificate: bool = True, check: bool = True, seed: int = 0,
    rng: np.random.Generator | None = None, reps: int = 1,
    callback: Callable[..., Any] | None = None, progress: Progress = None,
    checkpoint: Checkpoint | str | Path | None = None, engine: Engine | str | None = None,
) -> Result:  # fmt: skip
    r"""Find x with F(x) = 0 from samples of F.

    Parameters
    ----------
    sample : callable or Oracle
        `sample(x, n, rng, *args)` returns n independent samples of F at x, `(n, *shape)`, or their mean, with all
        randomness from `rng`, a `numpy.random.Generator`. On tensors of PyTorch it is a `torch.Generator` if the
        parameter is called `generator`; on JAX arrays it may be a key.
    x0 : array, dict or list of arrays, or torch.nn.Module
        The start, of any shape; the result has the same, and is of the same library (NumPy, PyTorch, JAX, CuPy). Trees
        of arrays reach `sample` as such, a module as the dict of its parameters.
    args : tuple, passed on to `sample`
    prox : callable, optional: solve 0 in F(x) + G(x) instead; see `inclusion`
    bounds : pair, list of pairs or scipy.optimize.Bounds, optional
        The constraint lower <= x <= upper as a prox: one pair for all coordinates, or one for each; None for no bound.
        Arrays of lower and of upper bounds go into a `Bounds`.
    eps : float
        The residual to reach; give either `eps` or `budget`. The run stops at the first point whose upper confidence
        bound is at most eps. If L (or M), sigma and D are known, and that takes more than a seventh of the samples that
        a theorem needs, the theorem's plan follows: it reaches eps in root mean square. `guarantee` asks for the plan.
    budget : int
        The samples that may be spent in all, on calibration, solving and certification.
    max_samples : int, optional
        The same limit with `eps`, 10,000,000 by default. If a theorem needs more, certificates decide instead.
    L : float, optional
        F is 1/L-cocoercive in expectation. Without L and M there is no theorem, and steps are found during the run.
    L_mean : float, optional
        The mean operator is 1/L_mean-cocoercive, L_mean <= L: plans then take longer steps with larger batches.
    M, mu : float, optional
        Samples are M-Lipschitz in mean square (with noise that does not depend on x: F is M-Lipschitz), and F is
        mu-strongly monotone. With M and no L the operator need only be monotone: games without curvature.
    sigma, D : float, optional
        Root mean square noise of one sample; an upper bound on the distance from x0 to a root.
    affine : bool
        Whether F is affine, as in least squares, policy evaluation and bilinear games. Theorems then need far fewer
        samples.
    confidence : float, optional
        That of the certificate, 0.95 by default. With `eps` and known constants, the probability that eps is reached.
    guarantee : bool, optional
        Whether a theorem is to stand behind the result (tapered Dual-OHM, restarts), rather than a certificate alone.
    batch : int, optional
        The least number of samples in a round, for samplers whose time is spent per call rather than per sample, such
        as those on tensors. By default few, so that there are many rounds. Batches of a theorem are multiples of it.
    max_rounds : int, optional
        The most rounds of the default method: 50,000 by default, 10,000 on tensors. More samples make larger rounds.
    method : "auto", the name of a method, or a Method; the last has batches of its own
    certificate : bool
        Whether to set samples aside for a certificate: a tenth, at least 256 if that is at most a quarter.
    check : bool
        Whether to spend a twentieth of the samples, at most 2,000, on a calibration that may warn.
    seed, reps : int: the seed of all randomness; the number of independent replications
    rng : numpy.random.Generator, optional
        Draws the seed, one number per call, in place of `seed`.
    callback, progress, checkpoint
        As in `solve`. A callback gets x in its own shape after every round or, if its parameter is called
        `intermediate_result`, a Result that has no residual yet.
    engine : {"local", "mpi", "ray"} or Engine, optional
        Where batches are computed, by several workers: `dualanchor.engines`. Their number does not change the result.

    Returns
    -------
    Result
        With `x`, `residual`, `certificate`, `plan`, `claim` (None with a plain budget) and `findings`; print it.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, n, rng):
    ...     return x - 1 + rng.normal(size=(n, 3)).mean(axis=0)
    >>> result = da.root(sample, x0=np.zeros(3), eps=0.1)
    >>> result.success, bool(np.linalg.norm(result.x - 1) < 0.2)
    (True, True)
    """
    return _solved(Request.of("root", locals()), sampled("root", sample, x0, args), bounds, prox=prox)


def fixed_point(
    sample: Sample | Oracle, x0: Any, *, args: Sequence[Any] = (), bounds: Any = None,
    eps: float | None = None, budget: int | None = None, max_samples: int | None = None,
    L: float | None = 2.0, L_mean: float | None = None, M: float | None = None, mu: float = 0.0,
    sigma: float | None = None, D: float | None = None, affine: bool = False, confidence: float | None = None,
    guarantee: bool | None = None, batch: int | None = None, max_rounds: int | None = None,
    method: str | Method = "auto", certificate: bool = True, check: bool = True, seed: int = 0,
    rng: np.random.Generator | None = None, reps: int = 1,
    callback: Callable[..., Any] | None = None, progress: Progress = None,
    checkpoint: Checkpoint | str | Path | None = None, engine: Engine | str | None = None,
) -> Result:  # fmt: skip
    """Find x = T(x) from samples of a map T that is nonexpansive in mean square.

    `sample(x, n, rng, *args)` returns the mean of n samples of T at x. The residual, eps and sigma are those of
    x - T(x); L is 2 and the largest step 1. With `bounds`, x is T(x) projected onto them. Keywords as in `root`.

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
    operator = sampled("fixed_point", sample, x0, args, minus_identity=True)
    return _solved(Request.of("fixed_point", locals()), operator, bounds)


def saddle(
    sample_u: Sample, sample_v: Sample | Any, x0: Any = None, *, args: Sequence[Any] = (),
    prox_u: Callable[..., Any] | None = None, prox_v: Callable[..., Any] | None = None, bounds: Any = None,
    eps: float | None = None, budget: int | None = None, max_samples: int | None = None,
    L: float | None = None, L_mean: float | None = None, M: float | None = None, mu: float = 0.0,
    sigma: float | None = None, D: float | None = None, affine: bool = False, confidence: float | None = None,
    guarantee: bool | None = None, batch: int | None = None, max_rounds: int | None = None,
    method: str | Method = "auto", certificate: bool = True, check: bool = True, seed: int = 0,
    rng: np.random.Generator | None = None, reps: int = 1,
    callback: Callable[..., Any] | None = None, progress: Progress = None,
    checkpoint: Checkpoint | str | Path | None = None, engine: Engine | str | None = None,
) -> Result:  # fmt: skip
    """Minimise over u and maximise over v from samples of the gradients.

    `sample_u(u, v, n, rng, *args)` returns the mean of n samples of the gradient in u, `sample_v` of the gradient in v
    of the same function, the one that v maximises: not minus it. Both get the same generator, one after the other.
    Or, with tensors of PyTorch or arrays of JAX, `saddle(phi, (u0, v0))`: `phi(u, v, n, rng, *args)` is the mean of n
    samples of the function itself, with all randomness from `rng`, a `torch.Generator` or a JAX key.
    `x0` and `x` are tuples (u, v). Keywords as in `root`, for F = (gradient in u, minus gradient in v); `prox_u` and
    `prox_v` are constraints or penalties of each player, `bounds` a tuple (bounds of u, bounds of v). For two bounded
    sets, such as simplices, and without L, `result.gap` bounds what both could gain by deviating.

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
    request = Request.of("saddle", locals())
    operator = (
        saddle_sampled(sample_u, sample_v, x0, args) if x0 is not None else differentiated(sample_u, sample_v, args)
    )
    return _solved(request, operator, bounds, prox_u=prox_u, prox_v=prox_v)


def inclusion(
    sample: Sample | Oracle, prox: Callable[..., Any], x0: Any, *, args: Sequence[Any] = (),
    eps: float | None = None, budget: int | None = None, max_samples: int | None = None,
    L: float | None = None, L_mean: float | None = None, M: float | None = None, mu: float = 0.0,
    sigma: float | None = None, D: float | None = None, affine: bool = False, confidence: float | None = None,
    guarantee: bool | None = None, batch: int | None = None, max_rounds: int | None = None,
    method: str | Method = "auto", certificate: bool = True, check: bool = True, seed: int = 0,
    rng: np.random.Generator | None = None, reps: int = 1,
    callback: Callable[..., Any] | None = None, progress: Progress = None,
    checkpoint: Checkpoint | str | Path | None = None, engine: Engine | str | None = None,
) -> Result:  # fmt: skip
    """Find x with 0 in F(x) + G(x): constraints, penalties, or any monotone G with a resolvent.

    `prox(z, step)` is (I + step G)^-1 z: one of `dualanchor.prox`, or a function of a point in the shape of x0. The
    residual is that of F(x) + g with a g in G(x), the KKT residual. Without L: the mean of mirror-prox steps of a
    length found during the run and, for a bounded set, `result.gap`, a bound on the largest <F(x), x - y> over y in it.
    Other keywords as in `root`.

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> def sample(x, n, rng):
    ...     return x - np.array([2.0, 0.5]) + rng.normal(size=2) / np.sqrt(n)
    >>> result = da.inclusion(sample, da.prox.box(0, 1), np.zeros(2), budget=20_000, L=1.0)
    >>> np.round(result.x, 1)
    array([1. , 0.5])
    """
    request = Request.of("inclusion", locals())
    require.function(prox, "inclusion: prox", "prox(z, step)", 2)
    return _solved(request, sampled("inclusion", sample, x0, args), prox=prox)


def _solved(
    request: Request, operator: tuple[Oracle, Layout, Array], bounds: Any = None, **proxes: Callable[..., Any] | None
) -> Result:
    """Solve a request on its engine, under `bounds` or the `proxes` of the blocks of the layout.

    x is returned in the user's layout, also that of a result in an error.
    """
    oracle, layout, x0 = operator
    request = request.showing(layout.split)
    prox = flat_prox(request.door, layout, x0, proxes, bounds)
    try:
        with opened(request.engine) as engine:
            oracle = oracle if engine is None else attach(oracle, engine)
            x0 = on_host(oracle, x0) if prox is None else x0
            request = with_saver(request, oracle, x0, prox)
            if prox is None:
                result = Route(request, oracle, x0).result()
            else:
                result = solve_composite(request, oracle, prox, x0)
        if request.door == "saddle":  # a root of a field that is not monotone may be a minimum in both u and v
            result = unless_sign_is_wrong(result)
    except InterruptedBeforeRun as interrupt:
        result = result_at_start(request, x0, interrupt.samples)
    except OracleError as error:
        if error.result is not None:
            error.result = replace(error.result, x=layout.split(error.result.x))
        raise
    after_run = [finding for finding in request.checkpoint_findings if finding not in result.findings]
    return replace(result, x=layout.split(result.x), findings=(*result.findings, *after_run))
