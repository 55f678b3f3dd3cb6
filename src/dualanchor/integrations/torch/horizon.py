"""Where a run with a horizon stands: its number of steps, the stages of averaged runs, warnings about its end."""

from contextlib import suppress
from itertools import pairwise
from math import ceil
from typing import Any

from dualanchor.core import check
from dualanchor.core.errors import ArgumentError, HorizonWarning, explain, warn_caller
from dualanchor.integrations.torch.field import Group


def horizon_from(owner: str, horizon: Any, total_steps: Any) -> int:
    """N, from either of the two ways to give it."""
    if (horizon is None) == (total_steps is None):
        received = "neither" if horizon is None else f"horizon={horizon} and total_steps={total_steps}"
        remedy = "Use total_steps=epochs * len(loader)"
        raise ArgumentError(f"{owner}: exactly one of total_steps and horizon must be given", received, remedy)
    if horizon is None:
        return 1 + check.count(total_steps, f"{owner}: total_steps", remedy="Use epochs * len(loader)")
    return check.count(horizon, f"{owner}: horizon", remedy="Use one more than the number of steps")


def steps_of(group: Group) -> int:
    """The number of steps of the whole run."""
    return group["horizon"] - 1


def stage(group: Group) -> tuple[int, int]:
    """The first k of the present stage and its horizon.

    Without averages there is one stage. With averages the last stage is the averaged part, and the steps before it are
    split at a quarter and at a half of them. Dual-OHM is near the solution only at the end of a horizon: so the points
    that are averaged begin near it.
    """
    total, k = steps_of(group), group["k"]
    if not group["averaged"]:
        return 0, total + 1
    tail = total - _averaged_steps(group)
    ends = (tail // 4, tail // 2, tail, total)
    begin, length = 0, ends[0]
    for end, following in pairwise(ends):  # without branches on k, each of which torch.compile would compile
        is_later = min(1, max(0, k - end + 1))
        begin += is_later * (end - begin)
        length += is_later * (following - end - length)
    return begin, length + 1


def is_averaging(group: Group) -> bool:
    """Whether the point after the next step will be averaged."""
    return bool(group["averaged"]) and group["k"] >= steps_of(group) - _averaged_steps(group)


def averaged_points(group: Group) -> int:
    """The number of points averaged so far."""
    return max(0, group["k"] - (steps_of(group) - _averaged_steps(group))) if group["averaged"] else 0


def _averaged_steps(group: Group) -> int:
    """The number of last steps whose points are averaged."""
    return ceil(group["averaged"] * steps_of(group))


def warn_of_other_settings(owner: str, before: list[Group], loaded: list[Group]) -> None:
    """Warn if a state was saved with another number of steps, other averages or another prox than groups had before.

    The prox of a loaded group is whether there was one; states of earlier versions do not say.
    """
    changes = []
    for here, group in zip(before, loaded, strict=True):
        if group["horizon"] != here["horizon"]:
            changes.append(f"total_steps of {steps_of(group)} in place of {steps_of(here)}")
        if group["averaged"] != here["averaged"]:
            changes.append(f"averaged={group['averaged']:g} in place of {here['averaged']:g}")
        if (had := group.get("prox")) is not None and had is not (here["prox"] is not None):
            changes.append(f"{'a' if had else 'no'} prox in place of {'none' if had else 'one'}")
    if changes:
        rule = f"{owner}: load_state_dict takes total_steps and averaged from the state, and the prox from here"
        remedy = (
            "Make the optimiser as it was when the state was saved, with the same prox; after loading, "
            "restart(total_steps=...) begins a run of another length"
        )
        received = f"a state with {', '.join(dict.fromkeys(changes))}"
        warn_caller(explain(rule, received, remedy), HorizonWarning)


class RunMonitor:
    """Warns once of each kind of trouble with the end of a run, also after its optimiser has been deleted.

    `groups` are the parameter groups of the optimiser, `saved_k` is the k at which its state was last saved, and
    `warned` has the kinds of warnings that were given.
    """

    def __init__(self, owner: str) -> None:
        self.saved_k = 0
        self.groups: list[Group] = []
        self.warned: set[str] = set()
        self._owner = owner

    def warn_once(self, kind: str, rule: str, received: str, remedy: str) -> None:
        """Warn, unless there was a warning of this kind before."""
        if kind not in self.warned:
            self.warned.add(kind)
            progress = f"after {self.groups[0]['k']} of {self._total_steps()} steps"
            warn_caller(explain(f"{self._owner}: {rule}", f"{received}, {progress}", remedy), HorizonWarning)

    def warn_if_unfinished(self) -> None:
        """Warn of an optimiser that is deleted in mid-run, unless its state was saved."""
        if self.saved_k < self.groups[0]["k"] < self._total_steps():
            rule, received = "the point of a run is the one after its last step", "a run that was dropped"
            remedy = "Make total_steps the number of steps taken: less where gradients are accumulated over batches"
            with suppress(HorizonWarning):  # raised in a finalizer, an error could not be caught
                self.warn_once("dropped", rule, received, remedy)

    def _total_steps(self) -> int:
        return min(map(steps_of, self.groups))
