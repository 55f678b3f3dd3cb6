"""Problems on which the untuned default is compared with tuned methods: linear, bent, flat, noisy, nearly noiseless.

Each has samples and the true operator, for rows of points; the operator is for measuring only.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import dualanchor as da

Rows = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Case:
    """A problem: `sample(x, n, rng)` gives means of n samples, `F(x)` the operator, both for x of shape (rows, d)."""

    name: str
    kind: str
    sample: Rows
    F: Rows
    x0: np.ndarray
    L: float
    budgets: tuple[int, ...] = (3000,)
    replayable: bool = True
    vanishing: bool = False  # whether the noise vanishes at the root

    def sampler(self) -> da.Sampler:
        """What a user would pass: samples and nothing else."""
        return da.Sampler(self._rows, vectorized=True, replayable=self.replayable)

    def problem(self) -> da.Problem:
        """For baselines: the operator is known, so that residuals are true ones."""
        oracle = self.sampler()
        oracle.knows_operator, oracle.operator = True, self.F
        return da.Problem(oracle, x0=self.x0, constants=da.Constants(L=self.L))

    def _rows(self, x: np.ndarray, n: int, rngs: list[np.random.Generator]) -> np.ndarray:
        """All rows from the generator of the first: rows are independent, and one call is fast."""
        return self.sample(x, n, rngs[0])

    def scaled(self, values: float, name: str) -> "Case":
        """The same with F in other units."""
        sample, F = self.sample, self.F
        return Case(
            name, self.kind, lambda x, n, rng: values * sample(x, n, rng), lambda x: values * F(x), self.x0,
            values * self.L, (1000, 2000), self.replayable, self.vanishing,
        )  # fmt: skip


def additive(name, kind, F, x0, L, sigma, *budgets, **options):
    """Gaussian noise, of root mean square sigma."""

    def sample(x, n, rng):
        return F(x) + sigma / np.sqrt(n * x.shape[1]) * rng.normal(size=x.shape)

    return Case(name, kind, sample, F, np.asarray(x0, float), L, budgets or (3000,), **options)


def finite(name, kind, values, count, x0, L, *budgets, **options):
    """Rows of data drawn at random: `values(x, i)` for x of shape (rows, d) and i of shape (rows, n)."""

    def sample(x, n, rng):
        return values(x, rng.integers(0, count, (len(x), n)))

    def F(x):
        return values(x, np.broadcast_to(np.arange(count), (len(x), count)))

    return Case(name, kind, sample, F, np.asarray(x0, float), L, budgets or (3000,), **options)


def linear_model(data, slope, ridge=0.0):
    """Gradients of sums of losses of a linear model; `slope(t, i)` is the derivative of loss i at t."""

    def values(x, i):
        rows = data[i]
        return np.einsum("rn,rnd->rd", slope(np.einsum("rnd,rd->rn", rows, x), i), rows) / i.shape[1] + ridge * x

    return values


def cases() -> list[Case]:
    """All problems."""
    rng = np.random.default_rng(20)
    ones = np.ones(10)
    turn = np.kron(np.eye(5), np.array([[0.0, 1.0], [-1.0, 0.0]]))
    made = []

    def affine(name, kind, mu, rotation, D, sigma, *budgets):
        Q = np.linalg.qr(rng.normal(size=(10, 10)))[0]
        J = Q @ (np.diag(np.linspace(mu, 1 - rotation / 2, 10)) + rotation / 2 * turn) @ Q.T
        root = rng.normal(size=10)
        L = 1 / np.linalg.eigvalsh((np.linalg.inv(J) + np.linalg.inv(J).T) / 2).min()
        start = root + D * Q[:, 0]
        made.append(additive(name, kind, lambda x: (x - root) @ J.T, start, L, sigma, *budgets))

    affine("rotation", "rotational", 0.01, 1.0, 3.0, 0.3, 3000)
    affine("gradient", "gradient-like", 0.1, 0.0, 3.0, 0.3, 500, 20_000, 100_000)
    affine("strongly monotone", "strongly monotone", 0.2, 0.5, 3.0, 0.3, 3000)
    affine("ill-conditioned", "gradient-like", 1e-3, 0.0, 10.0, 0.1, 3000)
    affine("heavy noise", "heavy noise", 0.05, 1.0, 3.0, 10.0, 3000)
    affine("nearly noiseless", "nearly noiseless", 0.05, 1.0, 3.0, 1e-4, 3000)

    game = rng.normal(size=(8, 8))
    game *= 0.9 / np.linalg.norm(game, 2)

    def saddle(mu):
        def F(z):
            u, v = z[:, :8], z[:, 8:]
            return np.concatenate([mu * u + v @ game.T, mu * v - u @ game], axis=1)

        return F

    made.append(additive("matrix game", "rotational, strongly monotone", saddle(0.2), np.ones(16), 4.25, 0.3, 10_000))
    near = (0.02**2 + 0.81) / 0.02
    made.append(additive("nearly bilinear game", "rotational", saddle(0.02), np.ones(16), near, 0.1, 5000))

    A = rng.normal(size=(30, 10)) / np.sqrt(30)
    made.append(
        additive(
            "sigmoid layer", "bent", lambda x: np.tanh(x @ A.T) @ A, 3 * ones, np.linalg.norm(A, 2) ** 2, 0.3, 3000
        )
    )
    made.append(additive("distance to a box", "bent", lambda x: x - np.clip(x, -1, 1), 3 * ones, 1.0, 0.5, 3000))
    made.append(additive("kink at the noise", "bent", lambda x: np.clip(20 * x, -1, 1), ones, 20.0, 0.5, 3000))
    made.append(
        additive(
            "turning kink",
            "bent, rotational",
            lambda x: np.clip(x, -0.05, 0.05) + 0.3 * x @ turn.T + 0.3 * x,
            ones,
            1.69 / 0.3,
            0.5,
            3000,
        )
    )

    def bent(x):
        y = np.tanh(x - 0.5)
        return y + 0.4 * y @ turn.T

    made.append(additive("noiseless and bent", "nearly noiseless, bent", bent, 2 * ones, 1.4, 1e-4, 3000))

    def leaky(x):
        y = x - 0.3
        return np.where(y > 0, y, 0.1 * y) + 0.5 * y @ turn.T

    made.append(additive("leaky game", "nearly noiseless, rotational", leaky, 2 * ones, 3.6, 0.01, 2000, 10_000))
    made.append(additive("flat start", "flat start", lambda x: np.tanh(10 * (x - 1)), [4.0], 10.0, 0.1, 2000, 10_000))
    made.append(
        additive("Huber", "flat start, nearly noiseless", lambda x: np.clip(50 * x, -1, 1), 5 * ones, 50.0, 1e-3, 2000)
    )

    def tails(x, n, rng):
        return x - 1 + rng.standard_t(3, size=(n, *x.shape)).mean(axis=0)

    made.append(Case("heavy tails", "heavy noise", tails, lambda x: x - 1, 3 * ones, 1.0, (3000,)))

    def growing(x, n, rng):
        return x + x * rng.normal(size=x.shape) / np.sqrt(n)

    made.append(
        Case("noise that grows", "vanishing noise", growing, lambda x: x, 3 * ones, 2.0, (500, 3000), vanishing=True)
    )
    own = np.random.default_rng(7)

    def simulator(x, n, rng):
        return 2 * np.tanh((x - 2) / 2) + 0.5 * x - 1 + own.normal(size=x.shape) / np.sqrt(n)

    made.append(
        Case(
            "own randomness",
            "not replayable",
            simulator,
            lambda x: 2 * np.tanh((x - 2) / 2) + 0.5 * x - 1,
            np.zeros(5),
            1.5,
            (2000, 10_000),
            replayable=False,
        )
    )

    data = rng.normal(size=(200, 10)) / np.sqrt(10)
    labels = np.sign(data @ rng.normal(size=10) + 0.5 * rng.normal(size=200))
    target = data @ rng.normal(size=10) + 0.3 * rng.normal(size=200)
    widest = float((data**2).sum(axis=1).max())
    logistic = linear_model(data, lambda t, i: -labels[i] / (1 + np.exp(labels[i] * t)), 0.01)
    made.append(
        finite("logistic regression", "data", logistic, 200, 2 * ones, widest / 4 + 0.01, 1000, 20_000, 500_000)
    )
    squares = linear_model(data, lambda t, i: t - target[i])
    made.append(finite("least squares", "data", squares, 200, 2 * ones, widest, 10_000))

    knots, where = np.linspace(0, 1, 12), rng.uniform(0, 1, 300)
    hats = np.maximum(0, 1 - np.abs(where[:, None] - knots) * 11)
    heights = np.sin(6 * where) + 0.02 * rng.normal(size=300)
    hinges = linear_model(hats, lambda t, i: np.clip(t - heights[i], -0.1, 0.1))
    made.append(finite("piecewise linear, Huber loss", "data, bent", hinges, 300, np.zeros(12), 1.0, 2000, 10_000))

    rows = rng.normal(size=(300, 40))
    solution = rows @ rng.normal(size=40)
    consistent = linear_model(rows, lambda t, i: t - solution[i])
    largest = float((rows**2).sum(axis=1).max())
    exact = finite(
        "consistent rows", "vanishing noise", consistent, 300, np.zeros(40), largest, 1000, 2000, vanishing=True
    )
    made += [exact, exact.scaled(0.01, "consistent rows, F / 100"), exact.scaled(100.0, "consistent rows, 100 F")]

    fits = rows[:, :20]
    aim = fits @ rng.normal(size=20)
    interpolating = linear_model(fits, lambda t, i: np.clip(t - aim[i], -1, 1))
    made.append(
        finite(
            "interpolation, Huber loss",
            "vanishing noise, bent",
            interpolating,
            300,
            np.zeros(20),
            float((fits**2).sum(axis=1).max()),
            2000,
            vanishing=True,
        )
    )

    sites, smooth = rng.uniform(0, 1, (12, 2)), 0.02
    grid = np.stack(np.meshgrid(*[(np.arange(60) + 0.5) / 60] * 2), -1).reshape(-1, 2)
    masses = rng.dirichlet(3 * np.ones(12))

    def shares(x, points):
        scores = (x[:, None] - ((points[:, :, None] - sites) ** 2).sum(-1)) / smooth
        scores = np.exp(scores - scores.max(axis=2, keepdims=True))
        return (scores / scores.sum(axis=2, keepdims=True)).mean(axis=1) - masses

    made.append(
        Case(
            "optimal transport",
            "semi-discrete",
            lambda x, n, rng: shares(x, rng.uniform(0, 1, (len(x), n, 2))),
            lambda x: np.concatenate([shares(one[None], grid[None]) for one in x]),
            np.zeros(12),
            0.5 / smooth,
            (5000, 100_000),
        )
    )

    moves = rng.dirichlet(0.3 * ones, size=10)
    visits = np.linalg.matrix_power(moves, 200)[0]
    rewards, gamma, edges = rng.normal(size=10), 0.9, np.cumsum(moves, axis=1)

    def temporal(x, n, rng):
        s = np.searchsorted(np.cumsum(visits), rng.uniform(size=(len(x), n)) * 0.999999)
        t = (edges[s] < rng.uniform(size=(len(x), n, 1)) * 0.999999).sum(axis=2)
        each = np.arange(len(x))[:, None]
        total = np.zeros_like(x)
        np.add.at(total, (each, s), x[each, s] - rewards[s] - gamma * x[each, t])
        return total / n

    K = visits[:, None] * (np.eye(10) - gamma * moves)
    Lt = float(np.linalg.norm(K, 2) ** 2 / np.linalg.eigvalsh((K + K.T) / 2).min())
    made.append(
        Case(
            "policy evaluation",
            "rotational, multiplicative noise",
            temporal,
            lambda x: x @ K.T - visits * rewards,
            np.zeros(10),
            min(Lt, 4.0),
            (5000,),
        )
    )

    made.append(
        Case(
            "price of a stock",
            "one dimension, counts",
            lambda x, n, rng: 20 - rng.poisson(40 * n * np.exp(-np.maximum(x, -5))) / n,
            lambda x: 20 - 40 * np.exp(-np.maximum(x, -5)),
            np.array([0.2]),
            40.0,
            (1000, 4000),
        )
    )
    made.append(
        Case(
            "service level",
            "one dimension, yes or no",
            lambda x, n, rng: rng.binomial(n, 1 / (1 + np.exp(-x))) / n - 0.9,
            lambda x: 1 / (1 + np.exp(-x)) - 0.9,
            np.array([0.0]),
            0.25,
            (1000, 4000),
        )
    )
    return made
