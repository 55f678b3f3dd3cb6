"""The methods' steps as loops over coordinates, one row at a time.

Written by tools/compiled_steps.py from the methods themselves: change those, not this.
"""

# ruff: noqa
# fmt: off
# mypy: ignore-errors

import numpy as np
from numba import njit

from dualanchor.fast.kinds import Steps


@njit(cache=True)
def _nothing(c, s, G):
    pass


@njit(cache=True)
def _no_point(c, s, G, point):
    pass


# DualOCHalpern


def dual_oc_halpern_coefficients(k, step_size, horizon, contraction):
    """Numbers of step k: 3 for each row."""
    return (1 - ((np.exp(((-((horizon - k) - 1)) * np.maximum((-2 * np.log(contraction)), 1e-300))) * np.expm1((-np.maximum((-2 * np.log(contraction)), 1e-300)))) / np.expm1(((-(((horizon - k) - 1) + 1)) * np.maximum((-2 * np.log(contraction)), 1e-300)))), ((np.exp(((-((horizon - k) - 1)) * np.maximum((-2 * np.log(contraction)), 1e-300))) * np.expm1((-np.maximum((-2 * np.log(contraction)), 1e-300)))) / np.expm1(((-(((horizon - k) - 1) + 1)) * np.maximum((-2 * np.log(contraction)), 1e-300)))) * step_size, step_size,)


@njit(cache=True)
def dual_oc_halpern(c, x, z, G0):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        z_i = z[i]
        t2 = ((z_i * c0) - (c1 * G0[i]))
        x[i] = x_i - ((c2 * G0[i]) + t2)
        z[i] = t2


@njit(cache=True)
def _dual_oc_halpern(c, s, G):
    dual_oc_halpern(c, s[0], s[1], G[0])


# TaperedDualOHM


def dual_ohm_coefficients(k, step_size, horizon):
    """Numbers of step k: 3 for each row."""
    return (((horizon - k) - 1) / (horizon - k), step_size / (horizon - k), step_size,)


@njit(cache=True)
def dual_ohm(c, x, z, G0):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        z_i = z[i]
        t2 = ((z_i * c0) - (c1 * G0[i]))
        x[i] = x_i - ((c2 * G0[i]) + t2)
        z[i] = t2


@njit(cache=True)
def _dual_ohm(c, s, G):
    dual_ohm(c, s[0], s[1], G[0])


# EAG


def eag_c_coefficients(k, step_size):
    """Numbers of step k: 2 for each row."""
    return (k + 2, step_size,)


@njit(cache=True)
def eag_c_look(c, x, anchor, G0, point):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    for i in range(x.size):
        point[i] = (((anchor[i] - x[i]) / c0) + x[i]) - (c1 * G0[i])


@njit(cache=True)
def _eag_c_look(c, s, G, point):
    eag_c_look(c, s[0], s[1], G[0], point)


@njit(cache=True)
def eag_c(c, x, anchor, G1):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    for i in range(x.size):
        x_i = x[i]
        x[i] = (((anchor[i] - x_i) / c0) + x_i) - (c1 * G1[i])


@njit(cache=True)
def _eag_c(c, s, G):
    eag_c(c, s[0], s[1], G[1])


# FEG


def feg_coefficients(k, step_size):
    """Numbers of step k: 3 for each row."""
    return (1 / (k + 1), (1 - (1 / (k + 1))) * step_size, step_size,)


@njit(cache=True)
def feg_look(c, x, anchor, G0, point):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    for i in range(x.size):
        point[i] = ((c0 * (anchor[i] - x[i])) + x[i]) - (c1 * G0[i])


@njit(cache=True)
def _feg_look(c, s, G, point):
    feg_look(c, s[0], s[1], G[0], point)


@njit(cache=True)
def feg(c, x, anchor, G1):
    c0 = x.dtype.type(c[0])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        x[i] = ((c0 * (anchor[i] - x_i)) + x_i) - (c2 * G1[i])


@njit(cache=True)
def _feg(c, s, G):
    feg(c, s[0], s[1], G[1])


# HalpernPAGE


def halpern_page_coefficients(k, step_size):
    """Numbers of step k: 3 for each row."""
    return (step_size, (k + 1) / (k + 2), k + 2,)


@njit(cache=True)
def halpern_page_one(c, x, estimate, previous, anchor, G0):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        x[i] = ((x_i - (c0 * G0[i])) * c1) + (anchor[i] / c2)
        estimate[i] = G0[i]
        previous[i] = x_i


@njit(cache=True)
def _halpern_page_one(c, s, G):
    halpern_page_one(c, s[0], s[1], s[2], s[3], G[0])


@njit(cache=True)
def halpern_page_look(c, x, previous, point):
    for i in range(x.size):
        point[i] = previous[i]


@njit(cache=True)
def _halpern_page_look(c, s, G, point):
    halpern_page_look(c, s[0], s[2], point)


@njit(cache=True)
def halpern_page_two(c, x, estimate, previous, anchor, G0, G1):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        estimate_i = estimate[i]
        t2 = (estimate_i + (G0[i] - G1[i]))
        x[i] = ((x_i - (c0 * t2)) * c1) + (anchor[i] / c2)
        estimate[i] = t2
        previous[i] = x_i


@njit(cache=True)
def _halpern_page_two(c, s, G):
    halpern_page_two(c, s[0], s[1], s[2], s[3], G[0], G[1])


# HalpernPAGEFresh


def halpern_page_fresh_coefficients(k, step_size):
    """Numbers of step k: 3 for each row."""
    return (step_size, (k + 1) / (k + 2), k + 2,)


@njit(cache=True)
def halpern_page_fresh_one(c, x, estimate, previous, anchor, G0):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        x[i] = ((x_i - (c0 * G0[i])) * c1) + (anchor[i] / c2)
        estimate[i] = G0[i]
        previous[i] = x_i


@njit(cache=True)
def _halpern_page_fresh_one(c, s, G):
    halpern_page_fresh_one(c, s[0], s[1], s[2], s[3], G[0])


@njit(cache=True)
def halpern_page_fresh_look(c, x, previous, point):
    for i in range(x.size):
        point[i] = previous[i]


@njit(cache=True)
def _halpern_page_fresh_look(c, s, G, point):
    halpern_page_fresh_look(c, s[0], s[2], point)


@njit(cache=True)
def halpern_page_fresh_two(c, x, estimate, previous, anchor, G0, G1):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        estimate_i = estimate[i]
        t2 = (estimate_i + (G0[i] - G1[i]))
        x[i] = ((x_i - (c0 * t2)) * c1) + (anchor[i] / c2)
        estimate[i] = t2
        previous[i] = x_i


@njit(cache=True)
def _halpern_page_fresh_two(c, s, G):
    halpern_page_fresh_two(c, s[0], s[1], s[2], s[3], G[0], G[1])


# OCHalpern


def oc_halpern_coefficients(k, step_size, contraction):
    """Numbers of step k: 3 for each row."""
    return (step_size, 1 - ((np.exp(((-(k + 1)) * np.maximum((-2 * np.log(contraction)), 1e-300))) * np.expm1((-np.maximum((-2 * np.log(contraction)), 1e-300)))) / np.expm1(((-((k + 1) + 1)) * np.maximum((-2 * np.log(contraction)), 1e-300)))), (np.exp(((-(k + 1)) * np.maximum((-2 * np.log(contraction)), 1e-300))) * np.expm1((-np.maximum((-2 * np.log(contraction)), 1e-300)))) / np.expm1(((-((k + 1) + 1)) * np.maximum((-2 * np.log(contraction)), 1e-300))),)


@njit(cache=True)
def oc_halpern(c, x, anchor, G0):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        x[i] = ((x_i - (c0 * G0[i])) * c1) + (c2 * anchor[i])


@njit(cache=True)
def _oc_halpern(c, s, G):
    oc_halpern(c, s[0], s[1], G[0])


# RAIN


def rain_coefficients(k, step_size, anchor_weight, growth):
    """Numbers of step k: 3 for each row."""
    return (anchor_weight * np.expm1((k * np.log1p(growth))), step_size, (1 - np.power((1 + growth), (-1.0 * k))) / ((1 + growth) - np.power((1 + growth), (-1.0 * k))),)


@njit(cache=True)
def rain_look(c, x, gap, G0, point):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    for i in range(x.size):
        point[i] = x[i] - (((c0 * gap[i]) + G0[i]) * c1)


@njit(cache=True)
def _rain_look(c, s, G, point):
    rain_look(c, s[0], s[1], G[0], point)


@njit(cache=True)
def rain(c, x, gap, G0, G1):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        gap_i = gap[i]
        t2 = (((c0 * (gap_i - (((c0 * gap_i) + G0[i]) * c1))) + G1[i]) * c1)
        x[i] = x_i - t2
        gap[i] = (gap_i * c2) - t2


@njit(cache=True)
def _rain(c, s, G):
    rain(c, s[0], s[1], G[0], G[1])


# DualOHM


def s_dual_ohm_coefficients(k, step_size, horizon):
    """Numbers of step k: 3 for each row."""
    return (((horizon - k) - 1) / (horizon - k), step_size / (horizon - k), step_size,)


@njit(cache=True)
def s_dual_ohm(c, x, z, G0):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        z_i = z[i]
        t2 = ((z_i * c0) - (c1 * G0[i]))
        x[i] = x_i - ((c2 * G0[i]) + t2)
        z[i] = t2


@njit(cache=True)
def _s_dual_ohm(c, s, G):
    s_dual_ohm(c, s[0], s[1], G[0])


# OHM


def s_ohm_coefficients(k, step_size):
    """Numbers of step k: 3 for each row."""
    return (step_size, (k + 1) / (k + 2), k + 2,)


@njit(cache=True)
def s_ohm(c, x, anchor, G0):
    c0 = x.dtype.type(c[0])
    c1 = x.dtype.type(c[1])
    c2 = x.dtype.type(c[2])
    for i in range(x.size):
        x_i = x[i]
        x[i] = ((x_i - (c0 * G0[i])) * c1) + (anchor[i] / c2)


@njit(cache=True)
def _s_ohm(c, s, G):
    s_ohm(c, s[0], s[1], G[0])


# SEG


def seg_coefficients(k, step_size):
    """Numbers of step k: 1 for each row."""
    return (step_size,)


@njit(cache=True)
def seg_look(c, x, G0, point):
    c0 = x.dtype.type(c[0])
    for i in range(x.size):
        point[i] = x[i] - (c0 * G0[i])


@njit(cache=True)
def _seg_look(c, s, G, point):
    seg_look(c, s[0], G[0], point)


@njit(cache=True)
def seg(c, x, G1):
    c0 = x.dtype.type(c[0])
    for i in range(x.size):
        x_i = x[i]
        x[i] = x_i - (c0 * G1[i])


@njit(cache=True)
def _seg(c, s, G):
    seg(c, s[0], G[1])


# SGDA


def sgda_coefficients(k, step_size):
    """Numbers of step k: 1 for each row."""
    return (step_size,)


@njit(cache=True)
def sgda(c, x, G0):
    c0 = x.dtype.type(c[0])
    for i in range(x.size):
        x_i = x[i]
        x[i] = x_i - (c0 * G0[i])


@njit(cache=True)
def _sgda(c, s, G):
    sgda(c, s[0], G[0])


# DecreasingSGDA


def sgda_decreasing_coefficients(k, step_size, mu, offset):
    """Numbers of step k: 1 for each row."""
    return (np.minimum(step_size, (1 / (mu * (k + offset)))),)


@njit(cache=True)
def sgda_decreasing(c, x, G0):
    c0 = x.dtype.type(c[0])
    for i in range(x.size):
        x_i = x[i]
        x[i] = x_i - (c0 * G0[i])


@njit(cache=True)
def _sgda_decreasing(c, s, G):
    sgda_decreasing(c, s[0], G[0])


STEPS = {
    "dual-oc-halpern": Steps(["x", "z"], ["step_size", "horizon", "contraction"], dual_oc_halpern_coefficients, 3, True, _dual_oc_halpern, _no_point, _nothing, False, dual_oc_halpern, ["x", "z"]),
    "dual-ohm": Steps(["x", "z"], ["step_size", "horizon"], dual_ohm_coefficients, 3, True, _dual_ohm, _no_point, _nothing, False, dual_ohm, ["x", "z"]),
    "eag-c": Steps(["x", "anchor"], ["step_size"], eag_c_coefficients, 2, False, _nothing, _eag_c_look, _eag_c, False, None, ["x", "anchor"]),
    "feg": Steps(["x", "anchor"], ["step_size"], feg_coefficients, 3, False, _nothing, _feg_look, _feg, False, None, ["x", "anchor"]),
    "halpern-page": Steps(["x", "estimate", "previous", "anchor"], ["step_size"], halpern_page_coefficients, 3, False, _halpern_page_one, _halpern_page_look, _halpern_page_two, True, None, ["x", "estimate", "previous", "anchor"]),
    "halpern-page-fresh": Steps(["x", "estimate", "previous", "anchor"], ["step_size"], halpern_page_fresh_coefficients, 3, False, _halpern_page_fresh_one, _halpern_page_fresh_look, _halpern_page_fresh_two, False, None, ["x", "estimate", "previous", "anchor"]),
    "oc-halpern": Steps(["x", "anchor"], ["step_size", "contraction"], oc_halpern_coefficients, 3, True, _oc_halpern, _no_point, _nothing, False, oc_halpern, ["x", "anchor"]),
    "rain": Steps(["x", "gap"], ["step_size", "anchor_weight", "growth"], rain_coefficients, 3, False, _nothing, _rain_look, _rain, False, None, ["x", "gap"]),
    "s-dual-ohm": Steps(["x", "z"], ["step_size", "horizon"], s_dual_ohm_coefficients, 3, True, _s_dual_ohm, _no_point, _nothing, False, s_dual_ohm, ["x", "z"]),
    "s-ohm": Steps(["x", "anchor"], ["step_size"], s_ohm_coefficients, 3, True, _s_ohm, _no_point, _nothing, False, s_ohm, ["x", "anchor"]),
    "seg": Steps(["x"], ["step_size"], seg_coefficients, 1, False, _nothing, _seg_look, _seg, False, None, ["x"]),
    "sgda": Steps(["x"], ["step_size"], sgda_coefficients, 1, True, _sgda, _no_point, _nothing, False, sgda, ["x"]),
    "sgda-decreasing": Steps(["x"], ["step_size", "mu", "offset"], sgda_decreasing_coefficients, 1, True, _sgda_decreasing, _no_point, _nothing, False, sgda_decreasing, ["x"]),
}
