"""The intervals of `infer` contain the root as often as they say.

A coordinate fails if fewer of the 300 runs are covered than a coverage of exactly 94 % would give in all but one of a
million cases, that is below 86.7 %. 26 coordinates and contrasts: false failure below 3e-5 in all. Standard errors too
small by a third, with a coverage of 81 %, would be found with a probability of 99 % in one coordinate.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tools.inference_table import EQUATIONS, misses

import dualanchor as da

pytestmark = pytest.mark.slow

REPS = 300
FEWEST = stats.binom.ppf(1e-6, REPS, 0.94) / REPS


def covered(equation, samples, *, data, reps=REPS):
    return np.mean(np.array(list(misses(equation, samples, reps, data=data))) == 0, axis=0)


@pytest.mark.parametrize("name", EQUATIONS)
def test_coverage(name):
    assert covered(EQUATIONS[name](), 512, data=True).min() >= FEWEST


def test_coverage_with_a_simulator():
    """With 100 runs, which take long each: below 80 %. Standard errors of half the size are found with 99.6 %."""
    fewest = stats.binom.ppf(1e-6, 100, 0.94) / 100
    assert covered(EQUATIONS["Cournot game"](), 512, data=False, reps=100).min() >= fewest


def test_coverage_with_counts():
    """Whose samples at two points share hardly any noise; of 200 runs below 83.5 %, and fewer than 10 refused."""
    fewest, covered, refused = stats.binom.ppf(1e-6, 200, 0.94), 0, 0
    for seed in range(200):
        try:
            found = da.infer(
                lambda x, n, rng: 18 - rng.poisson(30 * np.exp(-x), (n, 1)), [0.52], samples=512, seed=seed
            )
        except da.errors.ArgumentError:
            refused += 1
            continue
        lower, upper = found.interval()[0]
        covered += lower <= np.log(30 / 18) <= upper
    assert refused < 10
    assert covered >= fewest - refused


def test_wrong_standard_errors_are_found(monkeypatch):
    true = da.infer

    def too_small(*args, **options):
        found = true(*args, **options)
        return replace(found, covariance=found.covariance / 2.25)

    monkeypatch.setattr(da, "infer", too_small)
    assert covered(EQUATIONS["Cournot game"](), 512, data=True).min() < FEWEST
