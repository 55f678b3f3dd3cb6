"""Every statement of the theory, checked on concrete operators.

`paper` and `beyond` have one short function for each statement, with its formula as the docstring; `worst_case` solves
for the worst operator; `complexity` measures how many samples an accuracy costs.
"""

from collections.abc import Callable, Iterable

from dualanchor.core.errors import unknown_name
from dualanchor.core.method import Method
from dualanchor.methods.dual_ohm import DualOHM
from dualanchor.methods.ohm import OHM
from dualanchor.paper.verify import beyond, paper, worst_case  # noqa: F401, they register statements
from dualanchor.paper.verify.check import STATEMENTS, Check, Statement, identifier

__all__ = ["Check", "Statement", "STATEMENTS", "verify", "selected"]


def verify(
    only: Iterable[str] | None = None,
    *,
    quick: bool = False,
    seed: int = 0,
    pep: bool | None = None,
    dual: Callable[..., Method] = DualOHM,
    anchor: Callable[..., Method] = OHM,
    progress: Callable[[int, int, Statement], None] | None = None,
) -> list[Check]:
    """Check statements of the paper and of `theory.bounds`: one Check for each statement and operator.

    Parameters
    ----------
    only : list of str, ids (or names) of the statements; all of them if left out
    quick : bool, whether there are fewer replications and no worst cases
    seed : int, everything random follows from it
    pep : bool, optional
        Whether worst cases over all operators are computed, which needs the extra `pep`; by default if it is installed
        and the check is not a quick one.
    dual, anchor : Method classes checked as Dual-OHM and as OHM: a variant of your own in their place
    progress : callable, called with (done, total, statement) before each statement

    Examples
    --------
    >>> from dualanchor.paper.verify import verify
    >>> [check.verdict for check in verify(["Lemma 4.2", "h-duality"])]
    ['holds', 'holds']
    """
    statements = selected(only, quick, pep)
    checks: list[Check] = []
    for done, statement in enumerate(statements):
        if progress is not None:
            progress(done, len(statements), statement)
        checks += statement.run(seed, quick, dual, anchor)
    return checks


def selected(only: Iterable[str] | None = None, quick: bool = False, pep: bool | None = None) -> list[Statement]:
    """The statements with these ids or names, or all; in the order in which they are shown."""
    wanted = set(STATEMENTS) if only is None else {identifier(name) for name in only}
    for name in wanted - set(STATEMENTS):
        raise unknown_name("verify: a statement's id", name, STATEMENTS)
    if pep:
        wanted.add(worst_case.ID)
    elif only is None and (quick or pep is False or not worst_case.installed()):
        wanted.discard(worst_case.ID)
    return [statement for name, statement in STATEMENTS.items() if name in wanted]
