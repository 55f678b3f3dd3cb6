"""Claims: what is claimed about the residual of a result, as data."""

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
    """The kind of statement about the residual at x.

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
    kind : ClaimKind, "not-reached" if no certificate reached eps; "none" if the theorem planned for does not apply
    bound : float or None, the bound on the residual; for "not-reached" the largest certified one, None if there is none
    confidence : float or None, the probability with which it holds; None for a bound in root mean square
    theorem, assumptions : the theorem behind the claim, and its assumptions
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
        """Whether the claim follows from a theorem."""
        return self.kind in (ClaimKind.THEOREM_RMS, ClaimKind.THEOREM_PROBABILITY)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The claim that `to_dict` wrote."""
        fields = {**facts, "kind": ClaimKind(facts["kind"]), "assumptions": tuple(facts["assumptions"])}
        if theorem := facts["theorem"]:
            fields["theorem"] = Theorem(**{**theorem, "assumptions": tuple(theorem["assumptions"])})
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """The claim as plain JSON values."""
        return {**jsonable(asdict(self)), "kind": self.kind.value}

    def __str__(self) -> str:
        return CLAIM_TEXTS[self.kind](self)


def _norm(claim: Claim) -> str:
    return f"|F(x){' + g' if claim.composite else ''}| <= {claim.bound:.4g}"


CLAIM_TEXTS: dict[ClaimKind, Callable[[Claim], str]] = {
    ClaimKind.THEOREM_RMS: lambda claim: f"root mean square residual <= {claim.bound:.4g}, by {claim.theorem}",
    ClaimKind.THEOREM_PROBABILITY: lambda claim: (
        f"{_norm(claim)} with probability {claim.confidence:g}, by {claim.theorem}"
    ),
    ClaimKind.CERTIFICATE: lambda claim: f"{_norm(claim)} with confidence {claim.confidence:g}, by certificate",
    ClaimKind.NOT_REACHED: lambda claim: (
        "eps not reached: nothing could be certified"
        if claim.bound is None
        else f"eps not reached: {_norm(claim)} with confidence {claim.confidence:g} is certified"
    ),
    ClaimKind.NONE: lambda _: "none: no theorem applies, see the warnings",
}
