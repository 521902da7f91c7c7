"""What trade-off curves and sensitivities say, in words."""

from __future__ import annotations

import math

from noonward.evaluate.answer import lasting, spoken
from noonward.evaluate.comparison import case_noun
from noonward.evaluate.evidence import how_to_run_more
from noonward.evaluate.statistics import Estimate
from noonward.evaluate.table import percent
from noonward.evaluate.what_if.study import Case, Curve, Study

MOST_OF_IT = 0.8
"""Share of a gain that is said to be most of it."""
HALF = 0.5
"""Changes that cost this share of the saving are named."""
FLAT = 0.005
"""Changes below this share count as none."""


def words(study: Study) -> list[str]:
    """Returns what a study says, the most important sentence first."""
    sentences = []
    for curve in study.curves:
        served, _ = study.served(curve)
        if len(served) >= 2:
            sentences += (_carbon_words if curve.name == "carbon" else _slack_words)(study, curve, served)
    if study.cases:
        sentences += _sensitivity_words(study)
    for curve in study.curves:
        sentences += _left_out_words(study, curve)
    if study.environments == 1:
        case, how = case_noun(study.scenario), how_to_run_more(study.scenario)
        sentences.append(f"One {case} gives no interval: run more {case}s ({how}) before you decide.")
    return sentences


def share(estimate: Estimate) -> str:
    """Returns a share in percent with its interval.

    Example:
        >>> share(Estimate(0.372, 0.31, 0.43)), share(Estimate(0.05))
        ('37% [31, 43]', '5.0%')
    """
    digits = 0 if abs(estimate.value) >= 0.1 else 1
    text = f"{100 * estimate.value:.{digits}f}%"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} [{100 * estimate.low:.{digits}f}, {100 * estimate.high:.{digits}f}]"


def saves(estimate: Estimate) -> str:
    """Returns what is saved of the bill, in words.

    Example:
        >>> saves(Estimate(0.3)), saves(Estimate(-0.1, -0.2, 0.05))
        ('saves 30% of the bill', 'raises the bill by 10% [-5, 20]')
    """
    if estimate.value >= 0:
        return f"saves {share(estimate)} of the bill"
    ends = (None, None) if estimate.low is None or estimate.high is None else (-estimate.high, -estimate.low)
    return f"raises the bill by {share(Estimate(-estimate.value, *ends))}"


def _carbon_words(study: Study, curve: Curve, served: list[Case]) -> list[str]:
    first, last = served[0], served[-1]
    return [
        f"At a carbon price of {first.title}, {study.policy} {saves(study.saved(first))} and avoids "
        f"{share(study.saved(first, 'kg'))} of emissions per GPU-hour against {spoken(study.today)}; at "
        f"{last.title} it {saves(study.saved(last))} and avoids {share(study.saved(last, 'kg'))}.",
        *_price_of_curve(study, served),
    ]


def _left_out_words(study: Study, curve: Curve) -> list[str]:
    """Returns which points of a curve serve fewer GPU-hours; why they do is not known here."""
    _, left_out = study.served(curve)
    if not left_out:
        return []
    own = curve.name == "slack" and curve.of_own
    *before, last = (case.title for case in left_out)
    lost = [study.work(case) for case in left_out]
    points = f"{', '.join(before)} and {last}" if before else last
    least, most = (f"{-100 * work:.0f}" for work in (max(lost), min(lost)))
    fewer = least if least == most else f"{least} to {most}"
    where = f"At {points}" if curve.name == "carbon" else f"With a slack of {points}"
    where = f"With {points} of the jobs' own slack" if own else where
    drawn = "these points are" if before else "this point is"
    return [f"{where}, {study.policy} serves {fewer}% fewer GPU-hours, so {drawn} left out above."]


def _price_of_curve(study: Study, cases: list[Case]) -> list[str]:
    """Returns what emissions that are avoided along a curve cost."""
    kg = [study.per_gpu_hour(case, "kg").value for case in (cases[0], cases[-1])]
    if kg[0] <= 0 or (kg[0] - kg[1]) / kg[0] < FLAT:
        return ["A higher carbon price changes its emissions little: the clean hours and sites are the cheap ones."]
    price = study.price_of_step(cases[0], cases[-1])
    ends = "" if price.low is None else f" [{price.low:,.0f}, {price.high:,.0f}]"
    if price.value <= 0:
        return ["Between the two, emissions fall and cost does not rise."]
    return [f"Between the two, a tonne of CO2 that is avoided costs {price.value:,.0f} USD{ends}."]


def _slack_words(study: Study, curve: Curve, served: list[Case]) -> list[str]:
    first, last = served[0], served[-1]
    gain = study.change_of_saving(last, first)
    own = curve.of_own
    least, most = (
        f"{case.title} of the jobs' own slack" if own else f"a slack of {case.title}" for case in (first, last)
    )
    least = "no slack" if first.at == 0 else least
    most = "the jobs' own slack" if own and last.at == 1 else most
    sentences = [
        f"With {least}, {study.policy} {saves(study.saved(first))} per GPU-hour; with {most} it "
        f"{saves(study.saved(last))}, at {lasting(last.delay_s.value)} of mean delay."
    ]
    if gain.value < FLAT:
        saves_without = study.saved(first).value >= FLAT
        why = ": the saving comes from where jobs run, not from when" if saves_without else ""
        return [*sentences, f"More slack gains little here{why}."]
    if gain.low is not None and gain.high is not None and gain.low <= 0:
        told = f"{100 * gain.value:.1f} points [{100 * gain.low:.1f}, {100 * gain.high:.1f}]"
        case, how = case_noun(study.scenario), how_to_run_more(study.scenario)
        return [
            *sentences,
            f"What slack gains ({told}) cannot be told from {study.environments} {case}s: run more ({how}).",
        ]
    enough = next(case for case in served if study.change_of_saving(case, first).value >= MOST_OF_IT * gain.value)
    if enough is not last:
        given = f"{enough.title} of that slack" if own else f"a slack of {enough.title}"
        sentences.append(
            f"{given[0].upper()}{given[1:]} is enough for {MOST_OF_IT:.0%} of that gain, at "
            f"{lasting(enough.delay_s.value)} of mean delay."
        )
    return sentences


def _sensitivity_words(study: Study) -> list[str]:
    saved = study.saved(study.base)
    sentences = [
        f"As it is, {study.policy} {saves(saved)} and avoids {share(study.saved(study.base, 'kg'))} of emissions per "
        f"GPU-hour against {spoken(study.today)}."
    ]
    if saved.value <= 0:
        return sentences
    sentences += _freedom_words(study)
    known = [case for case in study.cases if not case.policy and not math.isnan(study.saved(case).value)]
    changed = {case.change.name: study.change_of_saving(case) for case in known}
    most = min(known, key=lambda case: changed[case.change.name].value, default=None)
    if most is None:
        return sentences
    if changed[most.change.name].value > -FLAT:
        sentences.append("None of the changes costs more than half a point of that.")
        return sentences
    strong = [case for case in known if changed[case.change.name].value <= -HALF * saved.value] or [most]
    left = "; ".join(f"with {_inside(case)} it {saves(study.saved(case))}" for case in strong)
    sentences.append(f"The saving depends most on this: {left}.")
    small = [case for case in known if abs(changed[case.change.name].value) < FLAT]
    if small:
        sentences.append(
            f"It hardly depends on: {'; '.join(f'{_inside(case)}{_late(study, case)}' for case in small)}."
        )
    return sentences


def _late(study: Study, case: Case) -> str:
    """Returns how many more jobs are late or not done under another slack, in brackets; nothing where there are not."""
    if case.change.slack_factor is None:
        return ""
    late, base = case.not_in_time.value, study.base.not_in_time.value
    if not late > base + 1:
        return ""
    return f" (but {late:,.0f} jobs are then late or not done; as it is: {base:,.0f})"


def _freedom_words(study: Study) -> list[str]:
    """Returns what jobs that could be suspended, resized, capped or moved would save."""
    return [
        f"If {_inside(case)}, {case.policy} {saves(study.saved(case))}: "
        f"{percent(study.change_of_saving(case), signed=True)} percentage points against the same policy without that."
        for case in study.cases
        if case.policy and not math.isnan(study.saved(case).value)
    ]


def _inside(case: Case) -> str:
    """Returns a case's title up to its colon, as part of a sentence."""
    return case.title.partition(":")[0]
