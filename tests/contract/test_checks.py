"""`check_method` and `check_oracle`: ours pass, somebody's own class passes, and every check rejects a wrong class."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.statistics.kinds import KINDS, POINT

import dualanchor as da
from dualanchor.checks.report import CheckError
from dualanchor.core.method import Cost, State
from dualanchor.oracles.composite import Composite

EXPECTED: dict[str, dict[str, str]] = {}
"""What our methods and oracles are known to fail, with the reason."""

VARIANCE = "batches have the variance of a mean"
FRESH = "fresh batches differ"


@pytest.mark.parametrize("entry", da.list_methods(), ids=lambda entry: entry.id)
def test_our_methods(entry, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    da.check_method(entry.cls, expected_failures=EXPECTED.get(entry.id))


ORACLES = {
    **{name: kind().oracle for name, kind in KINDS.items()},
    "composite": Composite(da.AdditiveNoise(lambda x: x - 0.5, 0.3), da.prox.box(0, 1), step_size=1.0),
}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.slow
def test_our_oracles(name):
    da.check_oracle(ORACLES[name], POINT, expected_failures=EXPECTED.get(name))


# -- somebody's own classes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeavyBall(da.Method):
    """A user's method with two evaluations of one batch in each step and a memory of its own."""

    step_size: float
    batch_size: int = 2
    momentum: float = 0.3

    id, title, citation = "heavy-ball", "Heavy ball with a look ahead", "An example"

    def init(self, x0):
        s = super().init(x0)
        s.v = np.zeros_like(s.x)
        return s

    def step(self, k, s, F, coin=None):
        batch = F.draw(self.batch_size)
        half = s.x - self.step_size * F(s.x, batch)
        G = F(half, batch)
        s.v *= self.momentum
        s.v -= self.step_size * G
        s.x += s.v

    def cost(self, k, s=None, coin=None):
        return Cost(self.batch_size, 2 * self.batch_size)


class Coins(da.Oracle):
    """A user's oracle: F(x) = x / 2 with a fair coin per sample for each coordinate."""

    dimension, replayable, rowwise, knows_operator = 3, True, True, True

    def draw(self, streams, size):
        coins = [rng.choice([-1.0, 1.0], size=(size, 3)).mean(axis=0) for rng in streams.generators()]
        return da.Batch(size, np.array(coins))

    def mean(self, x, batch):
        return 0.5 * x + batch.data

    def operator(self, x):
        return 0.5 * x


def test_a_class_of_somebody_else():
    report = da.check_method(HeavyBall)
    assert str(report).splitlines()[0] == "HeavyBall"
    assert all(line.endswith(": passed") for line in str(report).splitlines()[1:])
    assert {outcome.name for outcome in report.outcomes} == set(WRONG_METHODS), "every check has a wrong class"
    assert da.check_method(HeavyBall(0.1, batch_size=5)).subject == "HeavyBall"
    report = da.check_oracle(Coins())
    assert {outcome.name for outcome in report.outcomes} == set(WRONG_ORACLES), "every check has a wrong class"


@pytest.mark.parametrize("sample", [lambda x, n, rng: x / 3, lambda x, n, rng: np.tile(x / 3, (n, 1)).mean(axis=0)])
def test_an_oracle_without_noise_passes(sample):
    da.check_oracle(da.AdditiveNoise(lambda x: x, 0.0), [1.0, 2.0])
    da.check_oracle(da.Sampler(sample, replayable=True), [1.0, 2.0])


@pytest.mark.slow
def test_expected_failures_need_to_fail_and_to_exist():
    report = da.check_oracle(Single(), expected_failures={VARIANCE: "one coin for all"})
    assert f"{VARIANCE}: expected failure (one coin for all)" in str(report)
    with pytest.raises(CheckError, match="passed, but should fail") as caught:
        da.check_oracle(Coins(), expected_failures={FRESH: "no reason"})
    assert [one.name for one in caught.value.report.outcomes if not one.as_expected] == [FRESH]
    with pytest.raises(da.errors.UnknownNameError, match=FRESH):
        da.check_oracle(Coins(), expected_failures={"fresh batches": "mistyped"})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: da.check_method("sgda"), "method must be a Method. Got 'sgda'"),
        (lambda: da.check_method(Coins), "method must be a Method"),
        (lambda: da.check_oracle(lambda x: x), "oracle must be an Oracle"),
        (lambda: da.check_oracle(da.AdditiveNoise(lambda x: x)), "x0 must be given"),
        (lambda: da.check_oracle(Coins(), [1.0]), "x0 must have shape \\(3,\\)"),
    ],
)
def test_what_cannot_be_checked(call, message):
    with pytest.raises(da.errors.DualAnchorError, match=message):
        call()


# -- one wrong class for every check -----------------------------------------------------------------------------


class Doubled(HeavyBall):
    def init(self, x0):
        s = super().init(x0)
        s.v = np.zeros(s.x.shape)
        return s


class Coupled(HeavyBall):
    def step(self, k, s, F, coin=None):
        super().step(k, s, F, coin)
        s.x -= 0.01 * s.x.mean(axis=0)


@dataclass(frozen=True)
class Forgetful(HeavyBall):
    memory: list = field(default_factory=lambda: [0.0], compare=False, repr=False)

    def step(self, k, s, F, coin=None):
        self.memory[0] = 0.0 if k == 0 else self.memory[0] + 1.0
        super().step(k, s, F, coin)
        s.x *= 1 - 0.001 * self.memory[0] / (1 + k)


class Uncounted(HeavyBall):
    def step(self, k, s, F, coin=None):
        F.oracle.mean(s.x, F.oracle.draw(F.streams, 1))
        super().step(k, s, F, coin)


class Cheap(HeavyBall):
    def cost(self, k, s=None, coin=None):
        return Cost(self.batch_size, self.batch_size)


class Borrower(HeavyBall):
    def init(self, x0):
        return State(x=x0, v=np.zeros_like(x0))


@dataclass(frozen=True)
class Overrunning(HeavyBall):
    horizon: int = 12


class Lottery(HeavyBall):
    def step(self, k, s, F, coin=None):
        super().step(k, s, F, coin)
        s.x += np.random.default_rng().normal(size=s.x.shape)


class Hasty(HeavyBall):
    def step(self, k, s, F, coin=None):
        s.v += 1.0
        G = F(s.x, F.draw(self.batch_size))
        F(s.x, F.draw(self.batch_size))
        s.x -= self.step_size * G + 0 * s.v

    def cost(self, k, s=None, coin=None):
        return Cost(2 * self.batch_size, 2 * self.batch_size)


WRONG_METHODS = {
    "shapes and dtypes stay": Doubled,
    "rows do not depend on their grouping": Coupled,
    "a resumed run equals an uninterrupted one": Forgetful,
    "counts are those of a counting oracle": Uncounted,
    "a step costs what it declares": Cheap,
    "the budget is used and not exceeded": Cheap,
    "inputs are not changed": Borrower,
    "the horizon is respected": Overrunning,
    "results depend on the seed alone": Lottery,
    "a step that fails changes nothing": Hasty,
}


@pytest.mark.slow
@pytest.mark.parametrize("check", WRONG_METHODS)
def test_every_check_rejects_a_wrong_method(check):
    with pytest.raises(CheckError) as caught:
        da.check_method(WRONG_METHODS[check])
    assert check in {outcome.name for outcome in caught.value.report.outcomes if outcome.error}


class Flat(Coins):
    def mean(self, x, batch):
        return super().mean(x, batch)[:, :1]


class Careless(Coins):
    def mean(self, x, batch):
        x += 1
        return super().mean(x, batch)


class Broken(Coins):
    def mean(self, x, batch):
        return np.where(x > 1.2, np.inf, super().mean(x, batch))


class Forgotten(Coins):
    def draw(self, streams, size):
        return da.Batch(size, streams)

    def mean(self, x, batch):
        return super().mean(x, super().draw(batch.data, batch.size))


class Stale(Coins):
    def draw(self, streams, size):
        batch = super().draw(streams, size)
        return da.Batch(size, np.broadcast_to(batch.data[:1], batch.data.shape))


class Single(Coins):
    def draw(self, streams, size):
        return da.Batch(size, super().draw(streams, 1).data)


class Together(Coins):
    def mean(self, x, batch):
        return super().mean(x, batch) + 0.1 * x.mean(axis=0)


class Rows(Coins):
    scale = np.arange(1.0, 6.0)[:, None]

    def operator(self, x):
        return self.scale[: len(x)] * x


class Summed(Coins):
    def mean(self, x, batch):
        return super().mean(x, batch) * batch.size


class Biased(Coins):
    def mean(self, x, batch):
        return super().mean(x, batch) + 0.3


class Skipped(Coins):
    components = 4

    def full_batch(self):
        return da.Batch(4, 0.5)


WRONG_ORACLES = {
    "values have the shape and dtype of x": Flat,
    "the point is not changed": Careless,
    "values at finite points are finite": Broken,
    "a batch can be evaluated again": Forgotten,
    FRESH: Stale,
    "rows do not depend on their grouping": Together,
    "a selection of rows has the operator of these rows": Rows,
    "batches have the mean of single samples": Summed,
    "batches have the variance of a mean": Single,
    "samples have the mean that operator gives": Biased,
    "a full pass is the operator": Skipped,
}


@pytest.mark.parametrize("point", [[0.0, 0.0], [1.0, -2.0]])
def test_centring_over_rows_is_found(point):
    """The mean of the rows is that of none of the selections that are compared, and no two rows are equal."""
    with pytest.raises(CheckError) as caught:
        da.check_oracle(da.AdditiveNoise(lambda x: 2 * x - x.mean(axis=0), vectorized=True), point)
    failed = {outcome.name for outcome in caught.value.report.outcomes if outcome.error}
    assert failed >= {"rows do not depend on their grouping", "a selection of rows has the operator of these rows"}


def test_own_randomness_is_named_unless_it_is_declared():
    own = np.random.default_rng(0)

    def sample(x, n, rng):
        return x + own.normal(size=(n, 2)).mean(axis=0)

    with pytest.raises(CheckError, match="the same streams gave two values") as caught:
        da.check_oracle(da.Sampler(sample), [1.0, 2.0])
    failed = [outcome.name for outcome in caught.value.report.outcomes if outcome.error]
    assert failed == ["a batch can be evaluated again"]
    da.check_oracle(da.Sampler(sample, replayable=False), [1.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("check", WRONG_ORACLES)
def test_every_check_rejects_a_wrong_oracle(check):
    with pytest.raises(CheckError) as caught:
        da.check_oracle(WRONG_ORACLES[check]())
    assert check in {outcome.name for outcome in caught.value.report.outcomes if outcome.error}
