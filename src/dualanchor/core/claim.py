"""Claims: what may be said about the residual of a result, as data."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Self

from dualanchor.core.files import jsonable


@dataclass(frozen=True)
class Theorem:
    """A proved result: its id, such as "theorem-a", its title for printing, and its assumptions.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.plan(eps=0.1, L=1.0, sigma=1.0, D=1.0).theorem.id
    'theorem-b'
    """

    id: str
    title: str
    assumptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.title


class ClaimKind(Enum):
    """What kind of statement is made about the residual at x.

    Examples
    --------
    >>> import dualanchor as da
    >>> da.ClaimKind("certificate") is da.ClaimKind.CERTIFICATE
    True
    """

    THEOREM_RMS = "theorem-rms"
    THEOREM_PROBABILITY = "theorem-probability"
    CERTIFICATE = "certificate"
    NOT_REACHED = "not-reached"
    NONE = "none"


@dataclass(frozen=True)
class Claim:
    """What is claimed about the residual at x.

    Attributes
    ----------
    kind : ClaimKind, "not-reached" if no certificate says eps; "none" if a theorem was planned for and does not apply
    bound : float or None, of the residual; for "not-reached" the largest certified bound, None if there is none
    confidence : float or None, with this probability; None for a bound in root mean square
    theorem, assumptions : the result behind it, and what it rests on
    composite : bool, whether the residual is that of F(x) + g with g in G(x)

    Examples
    --------
    >>> import dualanchor as da
    >>> print(da.Claim(da.ClaimKind.CERTIFICATE, 0.1, 0.95))
    |F(x)| <= 0.1 with confidence 0.95, by certificate
    """

    kind: ClaimKind
    bound: float | None = None
    confidence: float | None = None
    theorem: Theorem | None = None
    assumptions: tuple[str, ...] = ()
    composite: bool = False

    @property
    def by_theorem(self) -> bool:
        """Whether a theorem stands behind it."""
        return self.kind in (ClaimKind.THEOREM_RMS, ClaimKind.THEOREM_PROBABILITY)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The claim that `to_dict` wrote down."""
        given = {**facts, "kind": ClaimKind(facts["kind"]), "assumptions": tuple(facts["assumptions"])}
        if theorem := facts["theorem"]:
            given["theorem"] = Theorem(**{**theorem, "assumptions": tuple(theorem["assumptions"])})
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """The claim as plain JSON values."""
        return {**jsonable(asdict(self)), "kind": self.kind.value}

    def __str__(self) -> str:
        return CLAIM_TEXTS[self.kind](self)


def _norm(claim: Claim) -> str:
    return f"|F(x){' + g' if claim.composite else ''}| <= {claim.bound:.4g}"


CLAIM_TEXTS: dict[ClaimKind, Callable[[Claim], str]] = {
    ClaimKind.THEOREM_RMS: lambda one: f"root mean square residual <= {one.bound:.4g}, by {one.theorem}",
    ClaimKind.THEOREM_PROBABILITY: lambda one: f"{_norm(one)} with probability {one.confidence:g}, by {one.theorem}",
    ClaimKind.CERTIFICATE: lambda one: f"{_norm(one)} with confidence {one.confidence:g}, by certificate",
    ClaimKind.NOT_REACHED: lambda one: (
        "eps not reached: nothing could be certified"
        if one.bound is None
        else f"eps not reached: {_norm(one)} with confidence {one.confidence:g} is certified"
    ),
    ClaimKind.NONE: lambda _: "none: no theorem applies, see the warnings",
}
