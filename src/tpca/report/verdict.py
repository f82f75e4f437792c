"""The verdict on a fit in plain words; every number in it is the result's own.

Confidence is a property of the method: on pure noise it claims a signal in at most ``1 - confidence`` of all runs.  It
is not the probability that there is a signal, and the words must not say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpca.noise import Check, doubts
from tpca.report.checks import fitted_checks, states
from tpca.report.document import Verdict
from tpca.results import names_of, verdict_of
from tpca.solvers.claim import headline, withdrawal
from tpca.wording import amount, beside, count, duration, number, percent, shape, within

ASSUMING = "if samples, or blocks of them, are independent and their noise is symmetric about zero"
VARYING = "if the covariance of the noise is a product of one for every mode"
LOOK = "Look at"  # how a sentence begins that says what alarms
MAX_TOLD = 6  # strengths that are told one by one
Summary = dict[str, Any]


def effect_of(component: Summary) -> str:
    """``effect of target - standard``, ``effect of dose, per unit``, ``effect between 3 labels``, or nothing."""
    effect = str(component.get("effect", ""))
    if not effect or effect.startswith("between "):
        return effect and f"effect {effect}"
    return f"effect of {effect}" if " - " in effect else f"effect of {effect}, per unit"


def confidence_of(summary: Summary) -> float:
    """The confidence that was asked for; results of before it was stored had the usual one."""
    return float(summary.get("settings", {}).get("confidence", 0.95))


def verdict_on(summary: Summary, checks: Sequence[Check], seconds: float | None) -> Verdict:
    """The verdict on a fit of samples; ``checks`` are those of one more pass.

    No claim is shown as good while a check speaks against it.
    """
    told = {"signal": ("good", _found), "no signal": ("bad", _nothing), "not tested": ("open", _untested)}
    verdict = verdict_of(summary)
    tone, words = told[verdict]
    said, sentences = words(summary)
    fitted = fitted_checks(summary)
    against = doubts(fitted)
    if tone == "good" and (against or states(list(checks))["bad"]):
        tone, said = "open", said if against else f"{said}; look at the noise"
    told_all = [*sentences, _checked([*fitted, *checks])]
    return Verdict(tone, headline(verdict, against, said), told_all, _facts(summary, seconds))


def _found(summary: Summary) -> tuple[str, list[str]]:
    confidence, components = confidence_of(summary), summary["components"]
    several = len(components) > 1
    headline = f"{count(len(components), 'component')} found" if several else "A signal was found"
    first = components[0]
    interval = f"with a {percent(confidence)} confidence interval of {within(first['strength_interval'])}"
    told = (
        f"{_strengths(components)}; the strongest {interval}."
        if several
        else f"{_whose(summary)} {beside(first['strength'], first['strength_interval'])}, {interval}."
    )
    sentences = [told, _proof(summary)]
    errors = {mode: error for mode, error in enumerate(first.get("error") or ()) if error is not None}
    if errors:
        worst = max(errors, key=errors.__getitem__)
        error = errors[worst]
        of = "the strongest component" if several else "the signal"
        sentences.append(
            f"The least certain vector of {of} is that of {names_of(summary)[worst]}: its root mean squared error is "
            f"{number(error, 2)}, which is an expected overlap with the truth of {_overlap(error)} (1 is perfect)."
        )
    if summary["stop_reason"] == "NOT_ACCURATE":
        sentences.append("Its vectors are not accurate yet: give more samples.")
    return headline, sentences


def _strengths(components: Sequence[Summary]) -> str:
    """All strengths, or from where to where they go."""
    values = [c["strength"] for c in components]
    if len(values) > MAX_TOLD:
        return f"The strengths go from {number(max(values))} down to {number(min(values))}"
    return "The strengths are " + ", ".join(beside(c["strength"], c["strength_interval"]) for c in components)


def _whose(summary: Summary) -> str:
    """What it is whose strength is told."""
    effect = effect_of(summary["components"][0])
    if summary["solver"] == "variance":
        return "Its strength, the standard deviation of its amplitude from sample to sample, is"
    return f"The {effect} has strength" if effect else "Its strength is"


def _overlap(error: float) -> str:
    """E⟨v̂, v⟩ of unit vectors with root mean squared error e: 1 − e²/2."""
    overlap = max(0.0, 1 - error**2 / 2)
    return number(overlap, 3) if overlap < 0.9995 else "more than 0.999"


def _proof(summary: Summary) -> str:
    """What the claim rests on."""
    delta = percent(1 - confidence_of(summary))
    assuming = VARYING if summary["solver"] == "variance" else ASSUMING
    means = f"On pure noise the method claims a signal in at most {delta} of runs, {assuming}"
    if len(summary["components"]) > 1:
        means += "; every further component is tested at the same level, in what those before it leave"
    first = summary["components"][0]
    evidence, p_value = first["evidence"], first["p_value"]
    told = [f"{means}."]
    if evidence is not None and evidence["kind"] == "length":
        length, needed, noise = number(evidence["value"]), number(evidence["needed"]), evidence["noise"]
        alone = f"; the same fit to noise alone reaches {number(sum(noise) / len(noise))}" if noise else ""
        mean = "mean of the contrasts of samples" if first.get("effect") else "mean of the samples"
        told.append(f"Here the best fit to the {mean} has length {length}, and {needed} was needed{alone}.")
    if p_value is not None:
        chance = number(p_value, 2) if p_value > 1e-30 else "10⁻³⁰"
        least = ", the least that this test can say" if at_least(summary, first) else ""
        told.append(f"Here p ≤ {chance}{least}: no larger a share of runs on pure noise shows as much.")
    return " ".join(told)


def at_least(summary: Summary, component: Summary) -> bool:
    """Whether a p-value is as small as it can be: that of m flips is 1/(m + 1), and m is twice what the level needs."""
    evidence, p_value = component["evidence"], component["p_value"]
    flips = evidence is not None and evidence["kind"] == "length"
    return flips and p_value is not None and p_value <= (1 - confidence_of(summary)) / 2 + 1e-9


def _nothing(summary: Summary) -> tuple[str, list[str]]:
    interval = summary["components"][0]["strength_interval"]
    limit = interval[1] if interval else None
    effect = effect_of(summary["components"][0])
    sentences = [f"What was looked for is the {effect}."] if effect else []
    sentences += [withdrawal(flaw) for flaw in summary["withdrawn"]]
    if limit is None and summary["withdrawn"]:
        sentences.append("The search ended with that claim, too early to say how strong a signal may be hidden.")
    elif limit is None:
        sentences.append("There are too few samples to say how strong a signal they might hide.")
    else:
        sentences.append(
            f"If there is one, its strength is below {number(limit)}, with 95 % confidence; these samples do not "
            "tell a weaker one from noise. That is not a proof that there is none."
        )
    memory = ", or more memory if it ran in little" if summary["solver"] == "race" else ""
    sentences.append(f"To find a weaker signal, give more samples{memory}.")
    return "No signal was found", sentences


def _untested(summary: Summary) -> tuple[str, list[str]]:
    reward = summary["components"][0]["strength"]
    early = summary["stop_reason"] == "STREAM_ENDED_EARLY"
    sentences = ["This method has no test of whether there is a signal, and gives no errors: nothing is proven by it."]
    if early:
        late = "The vectors are what was reached by then, and may be far off. Use the race, which needs far fewer."
        sentences.insert(0, late)
    if reward is not None:
        sentences.append(
            f"The mean reward was {number(reward)}; if there is a signal, that is about its strength times the "
            "overlaps."
        )
    ended = "the samples ended before the schedule did" if early else "the method ran to its end"
    return f"Not tested: {ended}", sentences


def _checked(checks: Sequence[Check]) -> str:
    found = states(list(checks))
    seen = found["good"] + found["handled"] + found["bad"]
    if not seen:
        reason = checks[0].meaning.removeprefix("Not checked") if checks else "."
        return f"Whether the noise is as assumed was not checked{reason}"
    if not found["bad"]:
        dealt = [c.meaning for c in checks if c.state == "handled"]
        return " ".join([f"The noise is as assumed, or was dealt with: {count(seen, 'check')}, no alarm.", *dealt])
    names = ", ".join(dict.fromkeys(c.name for c in checks if c.state == "bad"))  # the fit and the pass may agree
    return f"{LOOK} the noise: {found['bad']} of {seen} checks alarm ({names})."


def _facts(summary: Summary, seconds: float | None) -> list[tuple[str, str, str]]:
    first, confidence, verdict = summary["components"][0], confidence_of(summary), verdict_of(summary)
    facts = []
    if verdict == "not tested":
        facts.append(("mean reward", number(first["strength"]), "strength times overlaps"))
    elif verdict == "signal":
        interval = f"{within(first['strength_interval'])} at {percent(confidence)}"
        name = "strength" if len(summary["components"]) == 1 else "largest strength"
        facts.append((name, beside(first["strength"], first["strength_interval"]), interval))
        facts.append(("false alarms", f"≤ {percent(1 - confidence)}", "of runs on pure noise"))
    else:
        limit = (first["strength_interval"] or (None, None))[1]
        facts.append(("strength", f"< {number(limit)}" if limit is not None else "—", "95 % upper limit"))
        facts.append(("false alarms", f"≤ {percent(1 - confidence)}", "of runs on pure noise"))
    passes = f"in {summary['n_passes']} passes" if summary["n_passes"] > 1 else "in one pass"
    skipped = f", {summary['n_skipped']:,} skipped" if summary["n_skipped"] else ""
    facts.append(("samples", f"{summary['n_samples']:,}", f"of {shape(summary['dims'])}, {passes}{skipped}"))
    facts.append(("state", amount(summary["state_bytes"]), f"and {amount(summary['buffer_bytes'])} of buffer"))
    if seconds is not None:
        rate = f"{summary['n_samples'] * summary['n_passes'] / max(seconds, 1e-9):,.0f} samples a second"
        facts.append(("time", duration(seconds), rate))
    return facts
