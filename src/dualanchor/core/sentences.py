"""The sentences of findings, made only for printing: templates, or functions of the values of a finding."""

from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

Values = Mapping[str, Any]
Text = str | Callable[[Values], str]
Texts = Mapping[str, Text]


class _Formatter(Formatter):
    """Formats None, which stands for a number that is not finite, as "infinite"."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return "infinite" if value is None else str(format(value, format_spec))


_FORMATTER = _Formatter()


def sentence(text: Text, values: Values) -> str:
    """The sentence of a finding with these values."""
    if not isinstance(text, str):
        return text(values)
    return _FORMATTER.vformat(text, (), {**_phrases(values), **values})


_ANY_SIGN = "is a sign wrong? (saddle takes the gradient in v, not minus it)"
_SIGNS = {
    "root": "is a sign wrong?",
    "inclusion": "is a sign wrong?",
    "fixed_point": "T moves points apart there, and must not",
    "saddle": "is a sign wrong? (u descends and v ascends; sample_v is the gradient in v, not minus it)",
}


def _phrases(v: Values) -> dict[str, str]:
    """Phrases that several templates share."""
    door = v.get("door", "")
    phrases = {"operator": "F with its prox" if v.get("composite") else "x - T(x)" if door == "fixed_point" else "F"}
    phrases["sign"] = _SIGNS.get(door, _ANY_SIGN) if not v.get("composite") else f"is L too small, or {_ANY_SIGN}"
    phrases["decreases"] = {
        "fixed_point": "T moves points apart, and must not",
        "saddle": "are the signs right? u descends and v ascends",
    }.get(door, "did you mean -F?")
    if "of" in v:
        phrases["in_some_runs"] = "" if v["runs"] == v["of"] else f"in {v['runs']} of {v['of']} runs: "
    return phrases


def _residual_grew(v: Values) -> str:
    start = "" if v.get("start") is None else f" from {v['start']:.3g}"
    end = _FORMATTER.format("{0:.3g}", v["end"])
    return f"the residual grew{start} to {end}: the step or the noise is too large (is L right?), or a sign is wrong"


def _fall_not_visible(v: Values) -> str:
    if v.get("rare_noise"):
        return "not seen whether the residual fell: noise that only rare samples show may hide it; take more samples"
    at_least, at_most = v.get("at_least", 0.0), v.get("at_most", v["upper"])
    bounds = _FORMATTER.format("at least {0:.3g} at x0 by its samples, at most {1:.3g} now", at_least, at_most)
    large = ", allowing for missed samples as large as some of the run" if v.get("large_samples") else ""
    root = "x0 may be a root already, or " if v.get("start_hidden") else ""
    return f"not seen whether the residual fell: {bounds}{large}; {root}more samples are needed"


def _L_too_small(v: Values) -> str:
    if v.get("door") == "fixed_point" and v["given"] == 2:
        return (
            f"T is not nonexpansive in mean square: near x0 the cocoercivity constant of x - T(x) is at least "
            f"{v['seen']:.4g}, and that of a nonexpansive T at most 2"
        )
    of_samples = v.get("mean_is_fine")
    meaning = "of samples; that of their mean is L_mean" if of_samples else "M^2/mu, not M"
    small = f"L = {v['given']:.4g} is too small: near x0 it is at least {v['seen']:.4g}"
    return f"{small} (L is the cocoercivity constant {meaning})"


def _batches_of_one(v: Values) -> str:
    noise = "the noise of one sample" if v["sigma"] is None else f"sigma = {v['sigma']:.4g}"
    return f"batches of 1 leave a residual of the order of {noise} at any budget; da.root, or method='auto', do not"


def _order(count: int) -> str:
    """A count with two digits."""
    return f"{float(f'{count:.2g}'):,.0f}"


def _route_certified(v: Values) -> str:
    reason = {
        "constants-missing": f"{', '.join(v.get('names') or ())} not known",
        "no-theorem-wanted": "no theorem asked for",
        "no-noise": "no noise, so a certificate is exact",
        "too-many-samples": f"a theorem would take {v.get('samples') or 0:,} samples, more than max_samples",
        "method-given": "the method asked for",
    }[v["reason"]]
    stages = "it" if v["reason"] == "method-given" else "the default method"
    price = f"; of the order of {_order(v['expected'])} samples, at most {v['most']:,}" if v.get("expected") else ""
    return f"{reason}: stages of {stages}, a certificate after each{price}"


def _extragradient(v: Values) -> str:
    if v["reason"] == "seen":
        reason = "samples show an F that is not cocoercive"
    else:
        reason = "M is given without mu: F may not be cocoercive"
    return f"{reason}; the mean of extragradient steps, which has no theorem unless one is asked for (guarantee=True)"


def _gap(v: Values) -> str:
    bounds = v["upper"] if isinstance(v["upper"], list) else [v["upper"]]
    worst = "infinite" if None in bounds else f"<= {max(bounds):.4g}"
    each = " each" if len(bounds) > 1 else ""
    return (
        f"sup of <F(x), x - y> over y in the set {worst} with confidence {100 * v['confidence']:g} %{each} (asymptotic)"
    )


def _success_withheld(v: Values) -> str:
    reason = {
        "guarantee": "guarantee=True was asked for, and no theorem stands behind the result",
        "sign": "F is not monotone, so a point with a small residual need not be a solution",
    }[v["reason"]]
    return f"success is False: {reason}"


def _estimated_constants(v: Values) -> str:
    verb = "is" if len(v["names"]) == 1 else "are"
    return f"the theorem holds if {' and '.join(v['names'])} {verb} as estimated near x0"


def _biased_batches(v: Values) -> str:
    observed = f"the mean of {v['size']} samples differs from the mean of single samples"
    if abs(v["factor"] / v["size"] - 1) < 0.25:
        return f"{observed}, {v['factor']:.2g} times as large: sample returns a sum in place of a mean"
    return f"{observed}: sample is biased, or returns a sum in place of a mean"


def _batch_variance(v: Values) -> str:
    observed = f"the mean of {v['size']} samples has {v['ratio']:.2g} times the variance that independent samples give"
    if v["ratio"] == v["size"]:
        return f"{observed}, and is one sample: sample ignores n"
    return f"{observed}: samples within a batch depend on each other, or it is not their mean (a sum?)"


def _noise_not_seen(v: Values) -> str:
    if v["sigma"] is not None:
        return f"all samples agree, so the bound goes by the sigma of {v['sigma']:.4g} that was given"
    if v["scale"]:
        return (
            f"all samples agree; the bound allows for missed ones, as large as those seen elsewhere ({v['scale']:.3g})"
        )
    return (
        "all samples agree although they may be random: noise that none of them shows has no known size, so nothing "
        "can be certified; give sigma (0 if there is no noise), or take more samples"
    )


def _spent(purpose: str) -> Callable[[Values], str]:
    """The text for samples spent on a purpose: a count, or the range over replications."""

    def text(v: Values) -> str:
        counts = v["samples"] if isinstance(v["samples"], list) else [v["samples"]]
        return " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)})) + f" {purpose}"

    return text


ROUTES: Texts = {
    "route-theorem": "eps, {known}, sigma and D are known; proved with the fewest samples: {theorem}",
    "route-markov": "one run planned for eps times the root of {delta:.3g} (Markov) costs less than several",
    "route-best-of-runs": "{runs} independent runs planned for eps/3, the best chosen on {samples:,} fresh samples "
    "each: fails with probability at most {delta:.3g}",
    "route-guarantee": "a guarantee within the budget; the smallest proved bound: {theorem}",
    "route-budget": "a budget and no guarantee asked for: averaging, or Dual-OHM where averaging is seen to be biased",
    "route-certified": _route_certified,
    "route-certified-first": lambda v: (
        f"before that, stages that may be certified with {v['samples']:,} samples more; of the order of "
        f"{_order(v['expected'])} in all, at most {v['most']:,}"
    ),
    "route-method": "the method asked for",
    "route-passes": "a finite sum, and room for {passes:,} passes over its {components:,} components: SVRG, with exact "
    "residuals after each epoch",
    "route-start": "x0 reaches eps as it is: nothing was run",
    "extragradient": _extragradient,
    "mirror-prox": "a prox and no L: the mean of mirror-prox steps, multiplicative on simplices, of a length chosen "
    "from the samples; no theorem applies",
}
SAMPLES = {
    "calibration-samples": _spent("calibration"),
    "start-point-samples": _spent("start z0 = x0 - step F(x0)"),
    "start-residual-samples": _spent("residual at x0"),
    "selection-samples": _spent("other runs and selection"),
    "gap-samples": _spent("gap"),
    "certificate-samples": _spent("certificate"),
}
VIOLATIONS: Texts = {
    "decreasing": "{operator} looks decreasing, along {count} of {pairs} pairs (slope down to {slope:.3g}): "
    "{decreases}",
    "not-monotone": "{operator} is not monotone along {count} of {pairs} pairs (slope down to {slope:.3g}): {sign}",
    "not-cocoercive": "{operator} is not cocoercive along {count} of {pairs} pairs, where it turns without pulling: "
    "anchored methods have no guarantee; try extragradient methods (SEG and its averages)",
    "L-too-small": _L_too_small,
    "M-too-small": "M = {given:.4g} is too small: near x0 it is at least {seen:.4g} (M is the Lipschitz constant of "
    "samples in mean square)",
    "sigma-too-small": "sigma = {given:.4g} is too small: at {at} it is {relation} {seen:.4g}",
    "D-too-small": "D = {given:.4g} is too small: |F(x0)|/{constant} is at least {seen:.4g}",
    "above-bound": "the residual is at least {residual:.4g}, above the bound of {bound:.4g}: check L, sigma and D (a "
    "bound in root mean square may be exceeded now and then)",
    "biased-batches": _biased_batches,
    "batch-variance": _batch_variance,
    "broken-promise": "the oracle declares that its samples can be repeated, but one batch gave two values at x0",
    "run-cut-short": "the run ended before the step that the theorem speaks of",
}
WARNINGS: Texts = {
    "noise-grows": "the noise grows: sigma is {sigma_at_x0:.3g} at x0 and {sigma:.3g} at a distance of {distance:.3g}, "
    "about sqrt({sigma_at_x0:.3g}^2 + ({growth:.3g} r)^2) at a distance of r: the sigma found at x0 holds only near it",
    "start-not-visible": "in the calibration the noise hid |F(x0)|, which is at most {at_most:.3g}: x0 may be nearly a "
    "root, or more samples are needed",
    "scales-differ": "coordinate {large} of F is about {factor:.2g} times as large as coordinate {small}: the residual "
    "says little of the small ones; bring the unknowns to one scale",
    "own-randomness": "sample takes randomness from elsewhere than rng (np.random, torch.randn, a layer such as "
    "Dropout?) or keeps a state from call to call, so results do not depend on the seed alone; draw from the rng that "
    "is passed",
    "not-replayable": "samples cannot be repeated at a second point: L of single samples is not known, other estimates "
    "are rougher, and methods that evaluate one batch at two points cannot run",
    "checkpoint-not-written": "the checkpoint could not be written, so the run cannot be resumed from here: {error}",
    "diverged": "{in_some_runs}diverged at step {step}: x is the start again, or the best point that was certified",
    "residual-grew": _residual_grew,
    "samples-grew": "samples are about {factor:.2g} times as large as at the start: the step or the noise is too large "
    "(is L right?), or F is not monotone",
    "residual-did-not-fall": "the residual did not fall: about {start:.3g} at x0 and {end:.3g} now; has F a root, "
    "and does it depend on x?",
    "fall-not-visible": _fall_not_visible,
    "residual-fell-little": "the residual fell only from about {start:.3g} to {end:.3g}: is L right? Are more samples "
    "needed?",
    "success-withheld": _success_withheld,
    "stalled": "the residual has stayed near {residual:.2g} for most of the samples, so more may not help: is there a "
    "root, and does the method come nearer to it with this step and batch size?",
}
RUN_NOTES: Texts = {
    "back-at-start": "{in_some_runs}x is x0: no point seen to be better was found",
    "stopped-early": "{in_some_runs}ended at step {step}, before the horizon {horizon}: not the iterate of the theorem",
    "target-not-last-iterate": "stopped when the residual was small enough: the last-iterate theorem does not apply",
    "batches-of-one": _batches_of_one,
    "idle-workers": "rounds of 1 sample keep one of {workers} workers busy; use larger batches",
    "resumed": "resumed from a checkpoint of step {step}",
    "max-samples": "max_samples is {limit:,}: allow more, or ask for a larger eps",
    "more-samples": "eps may take {factor:.2g} times the samples",
    "dual-ohm-took-over": "{in_some_runs}averaging was seen to be biased, so Dual-OHM took over and finished the run",
    "no-L": "no L given: the step was chosen from the samples of the run, so no theorem applies; see the certificate",
    "estimated-constants": _estimated_constants,
    "composite-residual": "residual and certificate are those of F(x) + g with g in G(x), at x = prox(z)",
    "longer-steps": "batches of at least {size:,} admit steps of {step:.4g} and save {saved:,} of {rounds:,} rounds",
    "markov": "the residual is at most {eps:g} with probability {confidence:g}, by Markov's inequality",
    "growing-noise": "noise of at most {sigma:.4g} + {growth:.4g} |x - x0| counts as sigma = {assumed:.4g}",
    "not-checked": "the residual was not checked: success says only that the run ended as asked; see da.certify",
    "no-certificate": "no certificate: that takes a budget of {least} samples or more",
    "interrupted-before-run": "interrupted before the run had begun: x is x0",
    "certificate-interrupted": "interrupted while the certificate was being made, so there is none",
    "no-residual": "for a bound on the residual: {command}",
    "samples-rounded-down": "{used:,} of {given:,} samples were used: {groups} groups of {size:,}",
    "asymptotic": "asymptotic: noise that shows only in rare samples can make the bound too small",
    "few-groups": "{groups} groups instead of {usual}: with {samples} samples or more the bound is more reliable",
    "exact-residual": "exact: one pass over all {components:,} components",
    "samples-agree": "all samples agree: the oracle is taken to have no noise, and the bound to be exact",
}
CERTIFICATE_WARNINGS: Texts = {
    "noise-not-seen": _noise_not_seen,
    "samples-too-large": "some samples were infinite or too large to be squared",
    "spread-above-sigma": "the samples spread by {seen:.4g}, more than the sigma of {sigma:.4g} that the bound assumes",
}
OTHER_NOTES = {
    "separate-confidence": "each bound holds with the stated confidence by itself, not all of them together",
    "joint-confidence": "the confidence is that of all {count} bounds together, of which this is the smallest",
    "monotone-so-far": "no sign against monotonicity along {pairs} pairs",
    "no-noise": "no noise seen at x0",
    "rotation-unknown": "gradient-like or rotating: the samples leave it open",
    "gradient-like": "gradient-like: averaged SGDA may need fewer samples",
    "smooth-mean": "F is smoother than its samples, {factor:.2g} times near x0: large batches may admit larger steps",
    "growth-not-tested": "too few samples to see whether the noise grows away from x0",
    "batches-not-tested": "too few samples to compare batches with single samples",
    "no-far-samples": "no samples at a distance of {distance:.3g} from x0 or further: {error}",
    "no-visible-change": "no change of the operator was visible above the noise: pass radius to measure further out",
}
GAP: Texts = {"gap": _gap}
