"""Every method as a literal loop: plain NumPy, one row, straight from the formulas, with samples of its own.

A loop gets the hyper-parameters `m`, the start and `S`, which draws from fresh streams of the same seed and counts.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import ceil, inf, sqrt
from typing import Any

import numpy as np

import dualanchor as da
from dualanchor.core.streams import Purpose


class Samples:
    """The samples of one replication, read from the oracle itself in the order in which they are asked for."""

    def __init__(self, problem: da.Problem, seed: int, replication: int) -> None:
        one = np.array([replication])
        self.oracle, start, _ = problem.instance(da.Streams(seed, one, Purpose.INSTANCE))
        self.x0 = start[0]
        self._noise = da.Streams(seed, one, Purpose.NOISE, self.x0.size)
        self._coins = da.Streams(seed, one, Purpose.COIN)
        self.draws = self.evals = 0

    def draw(self, size: int) -> da.Batch:
        self.draws += size
        return self.oracle.draw(self._noise, size)

    def F(self, x: Any, batch: da.Batch) -> Any:
        self.evals += batch.size
        return self.oracle.mean(x[None], batch)[0]

    def uniform(self, k: int) -> float:
        return float(self._coins.uniforms(k, 1)[0, 0])


def size(batch_size: Any, k: int, N: int | None) -> int:
    """The size of round k."""
    if isinstance(batch_size, da.Tapered):
        return max(1, ceil(batch_size.C / sqrt((N - k) * (N - k - 1))))
    if isinstance(batch_size, da.Growing):
        return max(1, ceil(batch_size.c * (k + 1)))
    return batch_size[k] if isinstance(batch_size, list) else batch_size


def fresh(m: Any, S: Samples) -> Callable[[int, Any], Any]:
    """G_k = F_B(x_k) with a new batch every time."""
    return lambda k, x: S.F(x, S.draw(size(m.batch_size, k, getattr(m, "horizon", None))))


def page(S: Samples, p: Callable[[int], float], anew: Callable[[Any], Any], small: int) -> Callable[[int, Any], Any]:
    """A fresh estimate with probability p_k, otherwise the old one and a difference, on the same samples."""
    memory: dict[str, Any] = {}

    def G(k: int, x: Any) -> Any:
        if S.uniform(k) < p(k):
            v = anew(x)
        else:
            batch = S.draw(small)
            here = S.F(x, batch)
            v = memory["v"] + (here - S.F(memory["x"], batch))
        memory.update(v=v, x=x)
        return v

    return G


def estimate(m: Any, S: Samples) -> Callable[[int, Any], Any]:
    """What OHM and Dual-OHM read F through."""
    if m.estimator is None:
        return fresh(m, S)
    return paper_page(m.estimator, S)


def paper_page(sizes: Any, S: Samples) -> Callable[[int, Any], Any]:
    """The probabilities and batches of the paper."""
    return page(S, lambda k: min(1, 2 / (k + 2)), lambda x: S.F(x, S.draw(sizes.big_batch)), sizes.small_batch)


def dual_ohm(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, N, a = estimate(m, S), m.horizon, m.step_size
    x, T_before = x0, x0
    for k in range(steps):
        T = x - a * G(k, x)
        x = x + (N - k - 1) / (N - k) * (T - T_before)
        T_before = T
    return x


def halpern(G: Callable[[int, Any], Any], a: float, x0: Any, steps: int) -> Any:
    x = x0
    for k in range(steps):
        x = x0 / (k + 2) + (k + 1) / (k + 2) * (x - a * G(k, x))
    return x


def ohm(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    return halpern(estimate(m, S), m.step_size, x0, steps)


def halpern_page(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    return halpern(paper_page(m, S), m.step_size, x0, steps)


def halpern_vr_finite(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    n = m.components

    def p(k: int) -> float:
        return 1.0 if k <= 1 else 4 / (k + 4) if k - 1 <= sqrt(n) else 4 / (sqrt(n) + 5)

    b = ceil(sqrt(n)) if m.small_batch is None else m.small_batch
    G = page(S, p, lambda u: S.F(u, S.oracle.full_batch()), b)
    u = x0
    for k in range(steps):
        u = 2 / (k + 4) * x0 + (1 - 2 / (k + 4)) * u - m.step_size * G(k, u)
    return u


def sgda(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, x = fresh(m, S), x0
    for k in range(steps):
        x = x - m.step_size * G(k, x)
    return x


def seg(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, x = fresh(m, S), x0
    for k in range(steps):
        half = x - m.step_size * G(k, x)
        x = x - m.step_size * G(k, half)
    return x


def rain(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, eta, lam, gamma = fresh(m, S), m.step_size, m.anchor_weight, m.growth
    z, weights, sums = x0, 0.0, np.zeros_like(x0)  # S_k and m_k
    for k in range(steps):
        half = z - eta * (G(k, z) + lam * gamma * (weights * z - sums))
        moved = z - eta * (G(k, half) + lam * gamma * (weights * half - sums))
        weights, sums = weights + (1 + gamma) ** k, sums + (1 + gamma) ** k * z
        z = moved
    return z


def restarted_dual_ohm(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    x = x0
    for N, batch_size in zip(m.horizons, m.batch_sizes, strict=True):
        T_old = x  # the end of the stage before is the start of this one
        for k in range(min(steps, N - 1)):
            T = x - m.step_size * S.F(x, S.draw(size(batch_size, k, N)))
            x, T_old = x + (N - k - 1) / (N - k) * (T - T_old), T
        steps -= min(steps, N - 1)
    return x


def regularised_dual_ohm(m: Any, x0: Any, S: Samples, steps: int, x: Any = None) -> Any:
    G, N, x = estimate(m, S), m.horizon, x0 if x is None else x
    T_old = x
    for k in range(min(steps, N - 1)):
        T = x - m.step_size * (G(k, x) + m.delta * (x - x0))
        x, T_old = x + (N - k - 1) / (N - k) * (T - T_old), T
    return x


def recursive_extragradient(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    z, starts, weights = x0, [], []
    for factor, nu, length, b in zip(m.step_factors, m.deltas, m.stage_steps, m.batch_sizes, strict=True):
        a = factor * m.step_size
        starts, weights = [*starts, z], [*weights, nu - sum(weights)]
        pull = list(zip(weights, starts, strict=True))
        for _ in range(min(steps, length)):
            half = z - a * (S.F(z, S.draw(b)) + sum(w * (z - c) for w, c in pull))
            z = z - a * (S.F(half, S.draw(b)) + sum(w * (half - c) for w, c in pull))
        steps -= min(steps, length)
    starts, weights = [*starts, z], [*weights, m.last.delta - sum(weights)]
    centre = sum(w * c for w, c in zip(weights, starts, strict=True)) / m.last.delta
    return regularised_dual_ohm(m.last, centre, S, steps, z)


def tapered(N: int, total: int) -> list[int]:
    """The largest tapered batches of horizon N within a total, of which the last takes what they leave."""

    def sizes(C: float) -> list[int]:
        return [max(1, ceil(C / sqrt((N - k) * (N - k - 1)))) for k in range(N - 1)]

    low, high = 0.0, float(total * N)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if sum(sizes(middle)) <= total else (low, middle)
    *first, last = sizes(low)
    return [*first, last + total - sum(first) - last]


def auto(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    Q, b, x, y, start, anchor, safe = m.rounds, m.samples_per_round, x0, x0, x0, x0, (x0, 0.0, 0.0)
    E = Q // 20 if Q >= 800 else 0
    longest, ceiling, lowest, latest, before_latest, recent = m.step_size, inf, inf, inf, inf, inf
    n, level, gm, behind = 0.0, 0.0, 0 * x0, inf
    far = squares = path = above = checked = checked_step = 0.0
    trial, estimated, seen, peaked, last_step, first_square, mean_drift = False, False, False, 3.0, 0.0, 0.0, 1.0

    def sample(point: Any, size: int = b) -> Any:
        nonlocal steps
        if steps == 0:
            raise StopIteration
        steps -= 1
        return S.F(point, S.draw(size))

    def square(v: Any) -> float:
        return float(v @ v)

    def segment(before: int, rounds: int) -> tuple[Any, ...]:
        """Where it ends, its points, samples and steps, and r and the sum of squares of the whole run."""
        z, r, total, points, samples, a, used, walk = y, far, squares, [], [], longest, [], 0.0
        for k in range(rounds):
            g = sample(z)
            points, samples, total = [*points, z], [*samples, g], total + square(g)
            if k % 16 == 0 or k & (k - 1) == 0 or before + k < 16:
                if before == 0:
                    output[0] = sum(points) / len(points)
                r, walk = max(r, float(np.linalg.norm(z - start)), sqrt(walk) / 2), 0.0
                a = min(longest, 1.5 * r / sqrt(total)) if 1.5 * r > 1e-6 * longest * sqrt(total) else longest
            z, used, walk = z - a * g, [*used, a], walk + a**2 * square(g)
        return z, points, samples, used, max(r, float(np.linalg.norm(z - start)), sqrt(walk) / 2), total

    def after(number: int, rounds: int, ended: tuple[Any, ...], ahead: int = 0) -> bool:
        """Everything that follows a segment, with some rounds ahead; whether samples have settled."""
        nonlocal \
            x, \
            y, \
            start, \
            anchor, \
            safe, \
            longest, \
            ceiling, \
            lowest, \
            latest, \
            before_latest, \
            recent, \
            n, \
            level, \
            gm, \
            behind
        nonlocal \
            far, \
            squares, \
            path, \
            above, \
            checked, \
            checked_step, \
            trial, \
            peaked, \
            seen, \
            last_step, \
            first_square, \
            mean_drift
        z, points, samples, used, r, total = ended
        each, a = [square(g) for g in samples], used[-1]
        first_square = sum(each) / rounds if number == 0 else first_square
        T, length = sum(each) / rounds, sum(step**2 * one for step, one in zip(used, each, strict=True))
        c = sum(float(g @ h) for g, h in pairwise(samples)) / sum(each)
        late = each[max(0, (rounds - 1) // 16 * 16 - 16) :]
        lately = sum(late) / len(late)
        low, signal = sum(each[:4]) / len(each[:4]) if number == 0 else lowest, abs(c) > 0.5
        many = number == 0 or sum(one > 2 * lowest for one in each) > rounds / 4
        thrown = 0 < 1e3 * low < T and square(z - y) > (16 * far) ** 2
        back = (2 if signal else 8) * low < T and (many or thrown) and (number > 0 or low > 0)
        low = low or T
        turned = not back and c < -0.7
        path, above = path + length, max(above, T)
        drift, all_drift = square(z - y) / length, square(z - anchor) / path
        if each and sum(each[:4]) / len(each[:4]) < 2 * T:
            peaked += (sum(one**2 for one in each) * rounds / sum(each) ** 2 - peaked) / (
                min(8, number + 1) if number >= 0 else 8
            )
        seen = 5 * peaked < rounds
        fallen, coherent = seen and above > 4 * T, max(drift, all_drift)
        if signal:
            coherent = drift if drift > rounds / 2 and seen else 0.0
        due, gained = number % 8 == 4, lately < 0.6 * min(latest, before_latest)
        alone = T * checked_step < 0.7 * checked * a
        again = not back and not turned and drift < 0.8 and (gained if trial else due and not alone)
        if not (back or turned or trial):
            mean_drift += (min(drift, 2.0) - mean_drift) / 8
        settled = not (0.7 * checked > T or again) and 0.7 * level <= T and not signal and mean_drift < 0.7
        if trial and not gained:
            wanted = 4 * longest
        elif fallen:
            wanted = min(max(1.15 * (1 + all_drift) / 2, 0.5), 2.0) * a
        else:
            wanted = min((1 + coherent) / 2, 4.0) * longest if coherent > 2 else longest
        ceiling = a / 2 if back or turned else (2.0 if coherent > 2 and not signal else 1.1) * ceiling
        wanted = a / 4 if back else a / 2 if turned else min(wanted, ceiling)
        wanted = min(wanted, a) / 4 if again else wanted
        last_step = wanted if back or turned else a
        before_latest = before_latest if trial else latest
        latest = latest if trial and not gained else T
        checked, checked_step = (T, a) if due else (checked, checked_step)
        trial, changed, longest = again, fallen or wanted != longest, wanted
        path, above = (0.0, 0.0) if changed else (path, above)
        lowest = min(low, T) if seen else T if number == 0 else low
        if back and not signal:
            lowest = max(4 * low, T / 64) if number == 0 else 4 * low
        y, far, squares = safe if back else (z, r, total)
        if not back and (1.0 if signal else 1.5) * low >= T:
            safe = (z, r, total)
        anchor = y if changed else anchor
        if back:
            return settled
        recent = lately
        mean, g = sum(points) / rounds, sum(samples) / rounds
        pooled = (n * level + rounds * T) / (n + rounds)
        alike = (2.5 * level > T and level < 2.5 * T) or not seen
        before, now = (pooled if alike else level) / (n or 1.0), (pooled if alike else T) / rounds
        p, q, mixed = square(gm) + before, square(g) + now, float(gm @ g)
        w = min(max((p - mixed) / (p + q - 2 * mixed), 0.0), 1.0) if n else 1.0
        stale = level > max(1.7, 1 + 3 * sqrt(max(peaked - 1, 0) / rounds)) * T and n <= ahead and seen and c <= 0.5
        if stale and behind > 1.7 * T:
            w, behind = 1.0, T
        x, gm = x + w * (mean - x), gm + w * (g - gm)
        n = 1 / ((1 - w) ** 2 / (n or 1.0) + w**2 / rounds)
        level = n * ((1 - w) ** 2 * before + w**2 * now)
        if w > 0.9:
            far = last_step * sqrt(T)
            start, squares, safe = y, 0.0, (safe[0], far, 0.0)
        return settled

    output, left, done, number = [x0], Q - E, 0, 0
    try:
        while left:
            rounds = max(16, min(done // 8, left // 4))
            rounds = rounds if left >= 2 * rounds else left
            settled = after(number, rounds, segment(done, rounds), left - rounds)
            output[0], done, left, number = x, done + rounds, left - rounds, number + 1
            if left and E and settled and not estimated and Q // 8 <= done <= Q // 2:
                drawn, estimated = np.array([sample(x) for _ in range(E)]), True
                variance = float(drawn.var(axis=0, ddof=1).sum())
                residual = square(drawn.mean(axis=0)) - variance / E
                biased = 3 * (square(gm) + level / n) < residual <= variance
                scattered = biased and variance <= 0.75 * level
                longest = min(longest, last_step) / 4 if scattered else longest
                level = max(level, n * residual) if scattered else level
                if biased and not scattered:
                    N, z, a = max(2, left // 10), np.zeros_like(x0), min(longest, m.step_size, 2 * last_step)
                    for i, several in enumerate(tapered(N, left)):
                        G = sample(x, several * b)
                        z = ((N - i - 1) * z - a * G) / (N - i)
                        x = output[0] = x - a * G - z
                    return x
        moving = longest**2 * level > (1e3 * np.finfo(float).eps) ** 2 * square(y)
        late = 4 * n < Q and recent < 0.01 * first_square
        rest = (0 if estimated else E) + (m.spare if late and moving else 0)
        piece = max(16, (E + m.spare) // 6)
        while rest:
            rounds = rest if rest < 2 * piece else piece
            after(-1, rounds, segment(done, rounds))
            output[0], rest = x, rest - rounds
        return (
            y
            if (recent < square(gm) + level / n and seen)
            or (recent < 0.8 * level and 4 * n < Q and recent < 0.01 * first_square)
            else x
        )
    except StopIteration:
        pass
    return output[0]


def averaged_sgda(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, y, path = fresh(m, S), x0, []
    for k in range(steps):
        y = y - m.step_size * G(k, y)
        path.append(y)
    return mean_of(path, m.weights) if path else x0


def mean_of(path: list[Any], weights: str) -> Any:
    """The mean of x_1, x_2, .., with weights 1, 2, .. or equal ones."""
    return np.average(path, axis=0, weights=np.arange(1, len(path) + 1) if weights == "linear" else None)


def anytime_dual_ohm(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    x, N = x0, m.first_stage
    while True:
        C = m.batch_scale * N**2 * sum(1 / sqrt(i * (i - 1)) for i in range(2, N + 1))
        y, T_old = x, x
        for k in range(N - 1):
            if steps == 0:
                return x  # the stage is not finished
            steps -= 1
            T = y - m.step_size * S.F(y, S.draw(max(1, ceil(C / sqrt((N - k) * (N - k - 1))))))
            y, T_old = y + (N - k - 1) / (N - k) * (T - T_old), T
        x, N = y, 2 * N


def eag(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, z = fresh(m, S), x0
    for k in range(steps):
        half = z + (x0 - z) / (k + 2) - m.step_size * G(k, z)
        z = z + (x0 - z) / (k + 2) - m.step_size * G(k, half)
    return z


def feg(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, z, a = fresh(m, S), x0, m.step_size
    for k in range(steps):
        b = 1 / (k + 1)
        half = z + b * (x0 - z) - (1 - b) * a * G(k, z)
        z = z + b * (x0 - z) - a * G(k, half)
    return z


def dual_feg(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, N, a = fresh(m, S), m.horizon - 1, m.step_size
    z, w = x0, np.zeros_like(x0)
    for k in range(steps):
        here = G(k, z)
        half = z - a * w - a * here
        there = G(k, half)
        z = half - (N - k - 1) / (N - k) * a * (there - here)
        w = (N - k - 1) / (N - k) * w - there / (N - k)
    return z


def phi(k: int, contraction: float) -> float:
    return sum(contraction ** (-2 * i) for i in range(k + 1))


def oc_halpern(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, x = estimate(m, S), x0
    for k in range(steps):
        w = 1 / phi(k + 1, m.contraction)
        x = w * x0 + (1 - w) * (x - m.step_size * G(k, x))
    return x


def dual_oc_halpern(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, N = estimate(m, S), m.horizon
    x, T_before = x0, x0
    for k in range(steps):
        T = x - m.step_size * G(k, x)
        x, T_before = x + (1 - 1 / phi(N - k - 1, m.contraction)) * (T - T_before), T
    return x


def rain_double_loop(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    M, z, anchors, G, k = 1 / (4 * m.step_size), x0, [], fresh(m, S), 0
    for s, (T, N, K) in enumerate(zip(m.lengths, m.epochs, m.halvings, strict=True)):
        anchors.append((m.anchor_weight * 2**s, z))
        M_s = M + sum(weight for weight, _ in anchors)
        epochs = [(T, 1 / (4 * M_s))] * N + [(2 ** (r + 1) * T, 1 / (2 ** (r + 2) * M_s)) for r in range(1, K + 1)]
        for length, eta in epochs:
            halves = []
            for _ in range(length):
                if k == steps:
                    return z
                half = z - eta * (G(k, z) + sum(weight * (z - anchor) for weight, anchor in anchors))
                z = z - eta * (G(k, half) + sum(weight * (half - anchor) for weight, anchor in anchors))
                halves.append(half)
                k += 1
            z = np.mean(halves, axis=0)
    return z


def sgda_decreasing(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    G, x = fresh(m, S), x0
    for k in range(steps):
        x = x - min(m.step_size, 1 / (m.mu * (k + m.offset))) * G(k, x)
    return x


def mirror_prox(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    """For blocks of a product, or for one prox; entropy on simplices unless the geometry is Euclidean."""
    G, J = fresh(m, S), da.prox.none() if m.prox is None else m.prox
    parts = getattr(J, "blocks", [(x0.size, J)])
    cuts = np.cumsum([size for size, _ in parts])[:-1]
    blocks = []
    for x, (n, prox) in zip(np.split(x0, cuts), parts, strict=True):
        simplex = isinstance(prox, da.prox.simplex) and m.geometry == "auto"
        start = (prox(x) + prox.total / n) / 2 if simplex else prox(x) if prox.is_projection else x
        R = (
            sqrt(8 * np.log(prox.total / min(start)))
            if simplex
            else min(prox.diameter(n) or np.inf, m.distance or np.inf)
        )
        blocks.append({"J": prox, "simplex": simplex, "start": start, "z": start, "sum": 0 * x, "R": R, "errors": 0.0})

    def step(b: Any) -> float:
        return m.step_size or b["R"] / sqrt(b["errors"] or 1.0)

    def moved(b: Any, g: Any) -> Any:
        if not b["simplex"]:
            return b["J"](b["z"] - step(b) * g, step(b))
        total = b["J"].total
        logs = np.log(b["start"]) - step(b) * total * (b["sum"] + g)
        weights = np.exp(logs - logs.max())
        return total * weights / weights.sum()

    def norm(b: Any, g: Any) -> float:
        return b["J"].total * (g.max() - g.min()) / 2 if b["simplex"] else float(np.linalg.norm(g))

    halves, here = [], np.split(0 * x0, cuts)
    for k in range(steps):
        if not m.reuse:
            now = [moved(b, 0 * b["sum"]) if b["simplex"] else b["z"] for b in blocks]
            here = np.split(G(k, np.concatenate(now)), cuts)
            if k == 0:
                for b, g in zip(blocks, here, strict=True):
                    b["errors"] = norm(b, g) ** 2
        halves.append(np.concatenate([moved(b, g) for b, g in zip(blocks, here, strict=True)]))
        there = np.split(G(k, halves[-1]), cuts)
        for b, g, h in zip(blocks, here, there, strict=True):
            b["errors"] += norm(b, h - g) ** 2
            if b["simplex"]:
                b["sum"] = b["sum"] + h
            else:
                b["z"] = moved(b, h)
                b["R"] = m.step_size or max(b["R"], float(np.linalg.norm(b["z"] - b["start"])))
        here = there
    return np.mean(halves, axis=0) if halves else x0


def svrg(m: Any, x0: Any, S: Samples, steps: int) -> Any:
    n, norm = m.components, np.linalg.norm
    B = m.small_batch or ceil(n / 256)
    longest, length = max(64, n // B), max(16, n // B // 4)

    def fit(sums: Any, a: float, count: int) -> float:
        squares, products, distances = sums
        if distances == 0:
            return a / 100
        return max(products / (3 * squares), sqrt(distances / (count * squares))) if squares else 1000 * a

    def epoch(w: Any, Fw: Any, a: float, count: int, room: int) -> tuple[Any, Any, Any, bool]:
        """The last iterate, the mean, the sums, and whether it went too far; at most `room` steps."""
        z, points, sums, far = w, [], np.zeros(3), False
        for j in range(min(count, room)):
            batch = S.draw(B)
            change = S.F(z, batch) - S.F(w, batch)
            new = z - a * (Fw + change)
            far = far or not norm(new - w) <= 2 * (j + 1) * a * norm(Fw)
            if not far:
                sums += [change @ change, change @ (z - w), (z - w) @ (z - w)]
            z = w if far else new
            points.append(z)
        return z, np.mean(points, axis=0) if points else z, sums, far

    def full(x: Any) -> Any:
        return S.F(x, S.oracle.full_batch())

    if steps == 0:
        return x0
    w, Fw, k = x0, full(x0), 1
    a = m.step_size
    if a is None:
        a = 1e-3 * (norm(w) or 1) / (16 * norm(Fw))
        for part in (100, 1):
            *_, sums, _ = epoch(w, Fw, a, 16, steps - k)
            a, k = fit(sums, a, length) / part, min(steps, k + 16)
    while k < steps and norm(Fw) > (m.eps or 0) and a * length * norm(Fw) > 2.0**-52 * norm(w):
        room = ((m.budget or 10**9) - S.evals - n) // (2 * B)
        count = min(length, room) if room >= 16 else length
        z, mean, sums, far = epoch(w, Fw, a, count, steps - k)
        k += count
        found, longer, lower = fit(sums, a, count), min(2 * length, longest), False
        for point in () if far else (z, mean):
            if k >= steps or lower:
                break
            value, k = full(point), k + 1
            if lower := norm(value) < norm(Fw):
                w, Fw, length = point, value, longer
                a = min(2 * a, max(found, a)) if point is z else a
        if not lower:
            a, length = min(a / 4, found), length if far else longer
    return w


LITERAL: dict[str, Callable[[Any, Any, Samples, int], Any]] = {
    "anytime-dual-ohm": anytime_dual_ohm,
    "auto": auto,
    "averaged": averaged_sgda,
    "dual-feg": dual_feg,
    "dual-oc-halpern": dual_oc_halpern,
    "dual-ohm": dual_ohm,
    "eag-c": eag,
    "feg": feg,
    "halpern-page": halpern_page,
    "halpern-vr-finite": halpern_vr_finite,
    "mirror-prox": mirror_prox,
    "oc-halpern": oc_halpern,
    "rain": rain,
    "rain-double-loop": rain_double_loop,
    "recursive-extragradient": recursive_extragradient,
    "regularised-dual-ohm": regularised_dual_ohm,
    "restarted-dual-ohm": restarted_dual_ohm,
    "s-dual-ohm": dual_ohm,
    "s-ohm": ohm,
    "seg": seg,
    "sgda": sgda,
    "sgda-decreasing": sgda_decreasing,
    "svrg": svrg,
}
"""The literal loop of every registered method."""
