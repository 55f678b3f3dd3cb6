"""A front door solves one problem: oracles with data per row are refused."""

import numpy as np
import pytest

import dualanchor as da


def test_a_finite_sum_with_several_instances_is_refused():
    u = np.random.default_rng(0).normal(size=(3, 40, 2))
    several = da.FiniteSum.rank_one(u, targets=u @ np.array([1.0, 2.0]))
    for reps in (1, 3):
        with pytest.raises(ValueError, match=r"root: all rows of the oracle must have the same data.*da\.solve"):
            da.root(several, np.zeros(2), budget=500, reps=reps)
    one = da.FiniteSum.rank_one(u[0], targets=u[0] @ np.array([1.0, 2.0]))
    assert da.root(one, np.zeros(2), budget=500, reps=3).success.all()


def test_so_is_the_oracle_of_a_problem_with_an_instance_for_each_replication():
    oracle, x0, _ = da.problems.finite_sum_cocoercive(components=12, dimension=6, rank=5).instance(
        da.Streams(0, np.arange(4))
    )
    with pytest.raises(ValueError, match=r"root: all rows of the oracle must have the same data"):
        da.root(oracle, x0[0], L=1.0, reps=4, eps=2.0)


class Rows(da.Oracle):
    """F(x) = x - c, with a c for each row."""

    def __init__(self, c):
        self.c = c

    def draw(self, streams, size):
        return da.Batch(size, streams.normals() / size**0.5)

    def mean(self, x, batch):
        return x - self.c[: len(x), None] + batch.data

    def take(self, rows):
        return Rows(self.c[rows])


def test_so_is_an_oracle_of_a_user_that_selects_rows():
    with pytest.raises(ValueError, match="fixed_point: all rows of the oracle"):
        da.fixed_point(Rows(np.array([0.0, 5.0])), np.zeros(2), budget=500, reps=2)
