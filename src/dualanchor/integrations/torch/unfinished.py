"""What is said of a run that is left before its end, or goes past it."""

import warnings
from contextlib import suppress

from dualanchor.core.errors import HorizonWarning, explain
from dualanchor.integrations.torch.field import Group


class Run:
    """Where a run stands, for what is said when its optimiser is gone; `saved`: the k that was last saved."""

    def __init__(self, name: str) -> None:
        self.name, self.saved = name, 0
        self.warned: set[str] = set()
        self.groups: list[Group] = []

    def warn(self, rule: str, received: str, remedy: str) -> None:
        k, total = self.groups[0]["k"], min(group["horizon"] for group in self.groups) - 1
        text = explain(f"{self.name}: {rule}", f"{received}, after {k} of {total} steps", remedy)
        warnings.warn(text, HorizonWarning, stacklevel=5)

    def dropped(self) -> None:
        k = self.groups[0]["k"]
        if self.saved < k < min(group["horizon"] for group in self.groups) - 1:
            remedy = "Make total_steps the number of steps taken: less where gradients are accumulated over batches"
            with suppress(HorizonWarning):  # nobody could catch it here
                self.warn("the point of a run is the one after its last step", "a run that was dropped", remedy)
