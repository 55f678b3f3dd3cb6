"""A certificate: the residual at a point, estimated, with an upper confidence bound."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dualanchor.core import check
from dualanchor.core.files import jsonable
from dualanchor.core.finding import Finding
from dualanchor.core.render import html_table, span
from dualanchor.core.types import Array

NUMBERS = ("residual", "lower", "upper", "squared", "sigma")
"""The fields with one number per point."""

RULE_TEXTS = {
    "min": "asymptotic",
    "any-distribution": "for every distribution with sigma <= {sigma:.4g}",
    "sub-gaussian": "for sub-Gaussian noise with sigma <= {sigma:.4g}",
    "kurtosis": "for every distribution with a kurtosis <= {kurtosis:.4g}",
    "paired": "asymptotic, by pairs of samples",
    "exact": "exact",
}


@dataclass(frozen=True, repr=False)
class Certificate:
    r"""The residual at a point, estimated, with an upper confidence bound.

    The statement is :math:`\|F(x)\| \le` `upper`, made by a procedure that is right with probability `confidence` for
    each fixed x. For several points the numbers are arrays, one entry per point.

    Attributes
    ----------
    residual : float or array, the estimate of ‖F(x)‖: the root of `squared`, or 0 where that is negative
    lower, upper : float or array
        The bounds, each with the stated confidence by itself; infinite where samples were too large to square. The
        lower bound is asymptotic whatever the rule.
    squared : float or array, the unbiased estimate of ‖F(x)‖²; may be negative; average this one, not `residual`
    sigma : float or array, the estimated noise of one sample, the root of its variance E‖F̂(x; ξ) - F(x)‖²; 0 if exact
    confidence : float, the probability that the procedure is right; 1 if exact
    samples, groups : int, samples at each point (an array where they differ), and the number of groups of samples
    rule, assumed_sigma, assumed_kurtosis
        The rule for the bound, as named in `certify`, and the noise that it assumes at most (None: no assumption).
        "exact" is a pass over all components of a finite sum, with `lower` = `upper` = `residual`; "paired" is for
        points that a front door has corrected, with the residual expected there and no lower bound.
    findings : tuple of Finding, assumptions of the bound and warnings
    composite : bool, whether the residual is that of F(x) + g with g in G(x)

    Examples
    --------
    >>> import numpy as np, dualanchor as da
    >>> certificate = da.certify(da.AdditiveNoise(lambda x: x, sigma=1.0), np.zeros(2), samples=1024)
    >>> bool(certificate.residual <= certificate.upper), certificate.holds_for(0.5)
    (True, True)
    """

    residual: Any
    lower: Any
    upper: Any
    squared: Any
    sigma: Any
    confidence: float
    samples: Any
    groups: int
    rule: str
    findings: tuple[Finding, ...] = ()
    assumed_sigma: float | None = None
    assumed_kurtosis: float | None = None
    composite: bool = False

    @classmethod
    def exact(cls, residuals: Array, components: int, single: bool = False) -> Self:
        """The certificate for residuals (rows,) computed from all components of a finite sum; `single`: numbers."""
        residual = np.where(np.isfinite(residuals), residuals, np.inf).astype(float)
        sigma = np.zeros_like(residual)
        numbers = dict(zip(NUMBERS, (residual, residual, residual, residual**2, sigma), strict=True))
        fields: dict[str, Any] = {name: float(values[0]) if single else values for name, values in numbers.items()}
        findings = (Finding.of("exact-residual", components=components),)
        return cls(**fields, confidence=1.0, samples=components, groups=1, rule="exact", findings=findings)

    @property
    def scale(self) -> Any:
        """An upper bound on the norm of the largest sample, from the estimated residual and noise."""
        return self.residual + self.sigma * np.sqrt(self.samples)

    @property
    def is_exact(self) -> bool:
        """Whether the residual was computed from all components of a finite sum, not from samples."""
        return self.rule == "exact"

    @property
    def fresh_samples(self) -> Any:
        """Fresh samples at each point; 0 for a pass over all components."""
        return 0 * self.samples if self.is_exact else self.samples

    def holds_for(self, eps: float) -> Any:
        r"""Whether the certificate says :math:`\|F(x)\| \le` `eps`; an array for several points."""
        return bool(self.upper <= eps) if np.ndim(self.upper) == 0 else np.asarray(self.upper) <= eps

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; an infinite number is None."""
        return {name: jsonable(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The certificate that `to_dict` wrote; raises if its values cannot be those of a certificate."""
        fields = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        check.choice(facts["rule"], "rule", RULE_TEXTS)
        if facts["rule"] == "exact":
            check.number(facts["confidence"], "confidence", least=1.0, below=1 + 1e-9)
        else:
            check.probability(facts["confidence"], "confidence")
        check.count(facts["groups"], "groups")
        for name in ("assumed_sigma", "assumed_kurtosis"):
            if facts.get(name) is not None:
                check.number(facts[name], name)
        for name in NUMBERS:
            values = np.array(facts[name], dtype=float)  # None becomes nan
            fields[name] = np.where(np.isnan(values), np.inf, values)[()]
            check.array(fields[name], name, "f", fields["residual"].shape, least=-np.inf if name == "squared" else 0)
        samples = np.array(facts["samples"])[()]
        check.array(samples, "samples", "iu", samples.shape and fields["residual"].shape, least=0)
        findings = tuple(map(Finding.from_dict, facts.get("findings", ())))
        return cls(**fields | {"samples": samples, "findings": findings})

    def replaced(self, rows: Array, other: "Certificate") -> Self:
        """The certificate with the numbers of `other`, which is for a single point, where `rows` is True."""
        pairs = {name: (getattr(other, name), getattr(self, name)) for name in NUMBERS}
        numbers: dict[str, Any] = {name: np.where(rows, *pair)[()] for name, pair in pairs.items()}
        return replace(self, **numbers)

    def row(self, number: int) -> Self:
        """The certificate of one of several points."""
        numbers: dict[str, Any] = {name: getattr(self, name)[number].item() for name in NUMBERS}
        samples = self.samples[number].item() if np.ndim(self.samples) else self.samples
        findings = tuple(finding for finding in self.findings if finding.code != "separate-confidence")
        return replace(self, **numbers, samples=samples, findings=findings)

    def spread(self, rows: Array) -> Self:
        """The certificate for more points: its numbers where `rows` is True, infinite ones elsewhere."""
        numbers: dict[str, Any] = {name: np.full(len(rows), np.inf) for name in NUMBERS}
        for name, values in numbers.items():
            values[rows] = getattr(self, name)
        return replace(self, **numbers)

    @property
    def text(self) -> str:
        """The statement, in a sentence."""
        upper, residual, samples = span(self.upper, ".4g"), span(self.residual, ".4g"), span(self.samples, ",")
        has_several = np.ndim(self.upper) > 0
        points = f" at each of {np.size(self.upper)} points" if has_several else ""
        basis = RULE_TEXTS[self.rule].format(sigma=self.assumed_sigma, kurtosis=self.assumed_kurtosis)
        norm = "||F(x) + g||" if self.composite else "||F(x)||"
        if self.is_exact:
            return f"{norm} = {residual} with confidence 100 % (exact, from all {samples} components{points})"
        confidence = f"{100 * self.confidence:g} %{' each' if has_several else ''}"
        bound = f"{norm} <= {upper} with confidence {confidence} ({basis})"
        return f"{bound}; estimate {residual} from {samples} fresh samples{points}"

    def __repr__(self) -> str:
        (head, text), *findings = self._lines()
        return "\n".join([f"{head}: {text}", *(f"  {label}: {line}" for label, line in findings)])

    def _repr_html_(self) -> str:
        return html_table(self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        return [("Certificate", self.text), *((finding.label, str(finding)) for finding in self.findings)]
