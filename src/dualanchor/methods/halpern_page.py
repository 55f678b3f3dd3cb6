"""Halpern-PAGE: Halpern's step with the PAGE estimator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dualanchor.core.method import BATCH_SIZES, Estimator
from dualanchor.core.problem import Problem
from dualanchor.estimators.page import PAGE, FreshPAGE
from dualanchor.methods.ohm import HalpernStep


@dataclass(frozen=True)
class HalpernPAGE(HalpernStep):
    r"""Stochastic Halpern iteration with PAGE variance reduction for operators cocoercive in expectation.

    `OHM` with its batch mean replaced by `PAGE`: what anchoring needs to survive noise. Anytime.

    Update
    ------
    .. math:: x_{k+1} = \frac{1}{k+2} x_0 + \frac{k+1}{k+2} (x_k - \alpha v_k)

    with :math:`\alpha` = `step_size`; :math:`v_k` is, with probability :math:`p_k = \min\{1, 2/(k+2)\}`, a fresh
    mean of `big_batch` samples and otherwise :math:`v_{k-1}` plus the mean difference of `small_batch` samples between
    :math:`x_k` and :math:`x_{k-1}`.

    Guarantee
    ---------
    :math:`O(\epsilon^{-3})` samples for the last iterate with batch sizes that follow
    :math:`\|x_k - x_{k-1}\|` (Cai et al. 2022). None known for the constant sizes of the paper's experiments.

    Cost
    ----
    `big_batch` draws and evaluations, or `small_batch` draws and twice as many evaluations.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 2/L.
    big_batch, small_batch : int
        :math:`s_1` and :math:`s_2`.
    horizon : int, optional
        Stop after horizon - 1 steps.

    Notes
    -----
    The same samples are used at both points of a difference, which the oracle must be able to do.

    References
    ----------
    Cai, Song, Guzmán, Diakonikolas 2022; Li, Bao, Zhang, Richtárik 2021 (PAGE).

    Examples
    --------
    >>> import dualanchor as da
    >>> method = da.HalpernPAGE(step_size=1.0, big_batch=20, small_batch=1)
    >>> result = da.solve(da.problems.affine(sigma=0.1), method, budget=1000)
    >>> result.nfev <= 1000
    True
    """

    step_size: Any
    big_batch: Any = 10
    small_batch: Any = 1
    horizon: Any = None

    id = "halpern-page"
    title = "Halpern-PAGE, Halpern's method with variance reduction"
    citation = "halpern-page"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_count("big_batch")
        self._require_count("small_batch")

    @cached_property
    def estimator_in_use(self) -> Estimator:
        return PAGE(self.big_batch, self.small_batch)

    @classmethod
    def grid(cls, problem: Problem, budget: int) -> dict[str, list[Any]]:
        big = [size for size in BATCH_SIZES if size * 2 <= budget] or [1]
        return {"big_batch": big, "small_batch": [1, 5, 10, 20]}


@dataclass(frozen=True)
class HalpernPAGEFresh(HalpernPAGE):
    r"""Halpern-PAGE with independent samples at the two points of a difference.

    A reading of texts that leave open which samples a difference uses; it shows what `HalpernPAGE` gains from using
    the same ones. Anytime.

    Update
    ------
    As `HalpernPAGE`, with :math:`F_{S_2}(x_k) - F_{S_2'}(x_{k-1})` for independent :math:`S_2, S_2'`.

    Guarantee
    ---------
    None known: the noise of all differences since the last fresh batch adds up.

    Cost
    ----
    `big_batch` draws and evaluations, or twice `small_batch` of both.

    Parameters
    ----------
    step_size : float
        :math:`\alpha`, at most 2/L.
    big_batch, small_batch : int
        :math:`s_1` and :math:`s_2`.
    horizon : int, optional
        Stop after horizon - 1 steps.

    References
    ----------
    Cai, Song, Guzmán, Diakonikolas 2022.

    Examples
    --------
    >>> import dualanchor as da
    >>> result = da.solve(da.problems.affine(), "halpern-page-fresh", budget=500)
    >>> result.draws == result.nfev
    True
    """

    id = "halpern-page-fresh"
    title = "Halpern-PAGE with independent samples in differences"
    citation = "halpern-page"
    compared = False

    @cached_property
    def estimator_in_use(self) -> Estimator:
        return FreshPAGE(self.big_batch, self.small_batch)
