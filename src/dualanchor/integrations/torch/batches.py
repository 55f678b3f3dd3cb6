"""Tapered batches for a DataLoader."""

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError
from dualanchor.core.schedule import Tapered


class TaperedBatches(Sampler[list[int]]):  # type: ignore[misc]
    """The batches of a whole run, the smallest first and the largest last, made by `tapered_batches`.

    `sizes` has the size of each batch. Rows come in shuffled passes over the data, which depend on the seed alone.
    """

    def __init__(self, sizes: tuple[int, ...], rows: int, seed: int, start: int) -> None:
        self.sizes, self.rows, self.seed, self.start = sizes, rows, seed, start

    def __len__(self) -> int:
        return len(self.sizes) - self.start

    def __iter__(self) -> Iterator[list[int]]:
        rows = self._all_rows(sum(self.sizes[: self.start]))
        for size in self.sizes[self.start :]:
            yield list(islice(rows, size))

    def _all_rows(self, begin: int) -> Iterator[int]:
        """The rows of pass after pass, without end, from position `begin` on."""
        first, skipped = divmod(begin, self.rows)
        for number in count(first):
            rng = torch.Generator().manual_seed(((self.seed + 1) * 1_000_003 + number) % 2**63)
            order: list[int] = torch.randperm(self.rows, generator=rng).tolist()
            yield from order[skipped:] if number == first else order


def tapered_batches(
    total: int, steps: int, *, rows: int | None = None, least: int = 1, most: int | None = None, seed: int = 0,
    start: int = 0,
) -> TaperedBatches:  # fmt: skip
    r"""Batches for `DataLoader(data, batch_sampler=...)` that grow towards the end of a run.

    There noise harms `DualAnchor` most. Sizes follow `dualanchor.Tapered` within `least` and `most`. One pass over the
    loader is the whole run.

    Parameters
    ----------
    total : int, the number of rows read in all batches, such as `epochs * len(data)`; at most a few remain unread
    steps : int, the number of batches: the `total_steps` of the optimiser
    rows : int, `len(data)`; by default `total`, one pass over the data
    least, most : int, the smallest and the largest batch size allowed; `least` keeps the first steps stable
    seed : int, the seed of the order of rows
    start : int, the number of first batches to skip, for a run that is resumed after that many steps

    Examples
    --------
    >>> batches = tapered_batches(1000, steps=20)
    >>> batches.sizes[0], batches.sizes[-1], sum(batches.sizes)
    (16, 229, 1000)
    """
    name = "tapered_batches"
    total = check.count(total, f"{name}: total")
    steps = check.count(steps, f"{name}: steps")
    least = check.count(least, f"{name}: least")
    most = total if most is None else check.count(most, f"{name}: most", least)
    if not least * steps <= total <= most * steps:
        rule = f"{name}: {steps} batches of {least} to {most} rows must be able to have {total} rows in all"
        raise ArgumentError(rule, f"{least * steps} to {most * steps}", "Change steps, least or most")
    rows = total if rows is None else check.count(rows, f"{name}: rows")
    start = check.count(start, f"{name}: start", 0, most=steps)
    seed = check.count(seed, f"{name}: seed", 0)

    def sizes(C: float) -> Any:
        return np.clip(Tapered(C).size(np.arange(steps), steps + 1), least, most)

    low, high = 1e-9, 2.0 * most * (steps + 1)  # bisection for the largest C whose batches have at most `total` rows
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sizes(middle).sum() <= total else (low, middle)
    return TaperedBatches(tuple(sizes(low).tolist()), rows, seed, start)
