"""Compiled operators of the named problems: the mean of a batch at one point, in the order of the readable ones.

Each takes (x, data, constants, noise, picks, G) and fills G; constants[0] is the scale of the noise.
"""

# mypy: ignore-errors

from __future__ import annotations

from numba import njit


@njit(cache=True)
def turn(x, data, constants, noise, picks, G):
    """Experiment 1: x + H'x - c plus noise, with the linear part H' of H."""
    scale, offset = constants[0], data[0]
    G[0] = (x[0] - offset[0]) + x[x.size - 1] + scale * noise[0]
    before, here, shift, xi, value = x[:-1], x[1:], offset[1:], noise[1:], G[1:]
    for i in range(before.size):  # from zero on, so that no index can be negative: that is what makes it fast
        value[i] = (here[i] - shift[i]) - before[i] + scale * xi[i]


@njit(cache=True)
def coupled_huber(x, data, constants, noise, picks, G):
    """Experiment 3: clipped coordinates, a little of themselves, and a little of the other player's."""
    scale, mu, delta, nu = constants[0], constants[1], constants[2], constants[3]
    half, own = x.size // 2, 1 - delta
    u, v, xi_u, xi_v, G_u, G_v = x[:half], x[half:], noise[:half], noise[half:], G[:half], G[half:]
    for i in range(u.size):
        clipped = u[i] if u[i] > -nu else -nu
        clipped = clipped if clipped < nu else nu
        G_u[i] = clipped * own + mu * u[i] + delta * v[i] + scale * xi_u[i]
    for i in range(v.size):
        clipped = v[i] if v[i] > -nu else -nu
        clipped = clipped if clipped < nu else nu
        G_v[i] = clipped * own + mu * v[i] - delta * u[i] + scale * xi_v[i]


@njit(cache=True, fastmath={"reassoc"})
def _inner(q, x):
    total = 0.0
    for i in range(x.size):
        total += q[i] * x[i]
    return total


@njit(cache=True)
def rank_one(x, data, constants, noise, picks, G):
    """Experiment 2: the mean of q (q'x) over the picked lines q."""
    for i in range(x.size):
        G[i] = 0.0
    for j in range(picks.size):
        q = data[picks[j]]
        length = _inner(q, x)
        for i in range(x.size):
            G[i] += length * q[i]
    share = 1.0 / picks.size
    for i in range(x.size):
        G[i] *= share


OPERATORS = {"turn": turn, "coupled-huber": coupled_huber, "rank-one": rank_one}
