"""Policies that score every choice of a question by one small net, which any site asks about any choice.

A question is asked about a job that waits at a site. A choice not to start stands until the next entry of an hour, or
until the last slot in which the job can start there. Every job that waits has a plan (site and start), which the books
show to the questions of others. The net adds to each choice's planned value what it learned that the plan is worth less
or more (``learn.algorithms.masac_credit``); the feasible choice of highest value is taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from noonward.arrays import F4
from noonward.compiled import kernel
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.rule import rule
from noonward.decision.cluster.value import gang_at, run_seconds
from noonward.decision.cluster.view import HOLD, Answers, ClusterView, RuleMemory, first_seen, latest_start_s
from noonward.decision.scheduler import CompiledScheduler, months_remarks
from noonward.draws import random_below, uniform
from noonward.forecasts.forecast import Forecast
from noonward.schedule.cluster.choices.books import clear_past, forget_plan, note_plan, note_start
from noonward.schedule.cluster.choices.file import USE, ChoiceNets, read_choice_policy
from noonward.schedule.cluster.choices.inputs import (
    EARLIEST_S,
    LATER,
    LATER_S,
    NOTHING,
    OPTION,
    PLANNED,
    PLANNED_S,
    hide_foresight,
    look_at_site,
    write_choice,
    write_question,
)
from noonward.schedule.cluster.choices.layout import (
    ASK_S,
    DEVIATE,
    ENTRIES,
    HELD_UNTIL_S,
    HIDDEN_1,
    HIDDEN_2,
    HOUR,
    INPUTS,
    LAST_START_S,
    NOTE,
    NOTED,
    NUMBERS,
    PRICE_AT,
    PRICE_HIDDEN,
    PRICE_INPUTS,
    PRICE_SCALE,
    RESIDUAL,
    START_H,
    STATE_ONLY,
    TEMPERATURE,
    WINDOW_S,
)
from noonward.schedule.cluster.choices.layout import ROOM as NOTE_ROOM
from noonward.schedule.cluster.choices.prices import PRICED_H, renew_prices
from noonward.schedule.nets import layer
from noonward.units import DAY_H, HOUR_S

WORK: Final = 4
"""Rows of ``memory.scratch_XY`` that the nets work in; notes follow."""


@kernel(inline=True, allocates=False)
def _score(memory: RuleMemory) -> float:
    """Returns the scoring net's output for what the first row of the scratch holds."""
    number_P, scratch_XY, weight_W = memory.number_P, memory.scratch_XY, memory.weight_W
    first, second = int(number_P[HIDDEN_1]), int(number_P[HIDDEN_2])
    at = layer(weight_W, 0, INPUTS, first, scratch_XY[0], scratch_XY[1], True)
    at = layer(weight_W, at, first, second, scratch_XY[1], scratch_XY[2], True)
    layer(weight_W, at, second, 1, scratch_XY[2], scratch_XY[3], False)
    return scratch_XY[3, 0]


@kernel(inline=True, allocates=False)
def _row_of_note(memory: RuleMemory) -> int:
    """Returns the row for a note of the next question, or -1: notes are a random sample of all questions so far."""
    noted, room = int(memory.number_P[NOTED]), int(memory.number_P[NOTE_ROOM])
    if noted < room:
        return WORK + noted
    if room == 0:
        return -1
    row = random_below(memory.random_1, noted + 1)
    return WORK + row if row < room else -1


@kernel(inline=True, allocates=False)
def _choose(view: ClusterView, memory: RuleMemory, job: int, s: int) -> int:
    """Returns the choice for a job that waits at site s, and notes what was seen of it."""
    sites, number_P, scratch_XY = view.site_S.shape[0], memory.number_P, memory.scratch_XY
    option_SX = memory.table_XY[4 * sites + 1 :]
    for d in range(sites):
        look_at_site(view, memory, job, s, d, option_SX[d])
    write_question(view, memory, job, s, option_SX, scratch_XY[0])
    choices = 0
    for choice in range(1 + sites):
        choices += view.mask_NA[s, choice]
    row = _row_of_note(memory) if choices > 1 else -1
    best, most = -1, -np.inf
    draws = number_P[TEMPERATURE] > 0.0 and (number_P[DEVIATE] >= 1.0 or uniform(memory.random_1) < number_P[DEVIATE])
    for choice in range(1 + sites):
        if not view.mask_NA[s, choice]:
            continue
        value = write_choice(view, memory, s, choice, option_SX, scratch_XY[0])
        if number_P[STATE_ONLY] > 0.0:
            hide_foresight(scratch_XY[0])
        score = _score(memory)
        if number_P[RESIDUAL] > 0.0:
            score += value
        if draws:
            score -= number_P[TEMPERATURE] * np.log(-np.log(uniform(memory.random_1)))
        if score > most:
            best, most = choice, score
            if row >= 0:
                for i in range(INPUTS):
                    scratch_XY[row, i] = scratch_XY[0, i]
    if row >= 0:
        scratch_XY[row, INPUTS] = view.job_J[job].serial
        scratch_XY[row, INPUTS + 1] = view.run_1[0].now_s / HOUR_S
    if choices > 1:
        number_P[NOTED] += 1.0
    return best


@kernel(inline=True, allocates=False)
def _plan(view: ClusterView, memory: RuleMemory, job: int, s: int, choice: int) -> float:
    """Enters into the books what an answer leads to, a run that starts now or a plan.

    Returns:
        When a job that is held must start or leave to keep its plan, s; infinite without one.
    """
    if choice == 1 + s:
        note_start(view, memory, s, run_seconds(view, job, s), gang_at(view, job, s))
        return np.inf
    sites = view.site_S.shape[0]
    option_SX = memory.table_XY[4 * sites + 1 :]
    site, start_s, most = -1, 0.0, 0.0
    if choice == HOLD:
        for d in range(sites):
            if option_SX[d, LATER] > most:
                site, start_s, most = d, option_SX[d, LATER_S], option_SX[d, LATER]
    elif option_SX[choice - 1, PLANNED] > NOTHING:
        site, start_s = choice - 1, option_SX[choice - 1, PLANNED_S]
    if site < 0:
        return np.inf
    note_plan(view, memory, job, site, start_s, run_seconds(view, job, site), gang_at(view, job, site))
    return view.run_1[0].now_s + start_s - option_SX[site, EARLIEST_S]


@rule
def _by_choice(view: ClusterView, answers: Answers, memory: RuleMemory) -> None:
    number_P, now_s = memory.number_P, view.run_1[0].now_s
    clear_past(view, memory)
    if int(now_s // HOUR_S) != int(number_P[HOUR]):
        renew_prices(view, memory, memory.scratch_XY[0], memory.scratch_XY[1], memory.scratch_XY[2])
    for s in range(view.site_S.shape[0]):
        job = view.asked_N[s]
        if job < 0:
            continue
        if memory.serial_J[job] != view.job_J[job].serial:
            forget_plan(view, memory, job)
            first_seen(view, memory, job)
        if now_s < memory.job_number_JP[job, HELD_UNTIL_S]:
            continue
        forget_plan(view, memory, job)
        choice = _choose(view, memory, job, s)
        answers.answer_N[s].choice = choice
        due_s = _plan(view, memory, job, s, choice)
        until_s = 0.0
        if choice == HOLD:
            until_s = (now_s // number_P[ASK_S] + 1.0) * number_P[ASK_S]
            last_s = min(latest_start_s(view, job, s), number_P[LAST_START_S])
            if now_s < last_s < until_s:
                until_s = last_s // view.run_1[0].slot_s * view.run_1[0].slot_s
            until_s = min(until_s, due_s)
        memory.job_number_JP[job, HELD_UNTIL_S] = until_s


class ChoicePolicy(CompiledScheduler):
    """Answers with the feasible choice of highest score (module docstring).

    Args:
        nets: Nets.
        forecast: Forecast to plan by.
        ask_s: Length of a hold, s.
        residual: Whether the net's output is added to the planned value.
        state_only: Whether the net is shown only what the paper's state holds.
        price_scale: Factor on the learned prices; 0: none.
        temperature: Of the draw of a choice, share of the revenue; 0: the best one.
        deviate: Share of questions whose choice is drawn, where the temperature is above 0; the others take the best.
        notes: Questions that are noted (``noted``); 0: none.
    """

    rule = staticmethod(_by_choice)

    def __init__(
        self,
        nets: ChoiceNets,
        forecast: Forecast,
        *,
        ask_s: float = 900.0,
        residual: bool = True,
        state_only: bool = False,
        price_scale: float = 1.0,
        temperature: float = 0.0,
        deviate: float = 1.0,
        notes: int = 0,
    ) -> None:
        self.nets, self.ask_s, self.residual, self.price_scale = nets, ask_s, residual, price_scale
        self.state_only, self.temperature, self.deviate, self.notes = state_only, temperature, deviate, notes
        self.path: Path | None = None
        self.meta: dict[str, Any] = {}
        # Prices are read for as many hours whatever jobs come: else the reach would tell the longest one to come.
        self.needs = Needs(
            protocols=("each-slot",), signals=True, economics=True, forecast=forecast,
            lookahead_h=0 if forecast.foresight else PRICED_H + DAY_H,
        )  # fmt: skip

    @classmethod
    def of_file(cls, path: Path | str) -> ChoicePolicy:
        """Returns the policy of a file.

        Raises:
            DataError: The file is missing, damaged, of another format, or its parts do not fit.
        """
        nets, forecast, meta = read_choice_policy(Path(path))
        made = cls(nets, forecast, **{name: meta[name] for name in USE})
        made.path, made.meta = Path(path), meta
        return made

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns notes where the run is at other sites, or of months, that the policy was trained in."""
        if self.path is None:
            return ()
        what, trained = f"policy {self.path.name}", tuple(self.meta["sites"])
        notes = months_remarks(what, self.meta["record"], brief)
        if trained in (brief.sites, ()):
            return notes
        return (
            f"{what} was trained at the sites {', '.join(trained)}: at those of {brief.scenario!r} its results say how "
            "it carries over, not what learning reaches there",
            *notes,
        )

    def make_memory(self, brief: Brief, rng: np.random.Generator) -> RuleMemory:
        """Returns numbers, tables, books, nets and notes as ``layout`` says."""
        nets, sites = self.nets, len(brief.sites)
        price_at = sum(part.size for part in (*nets.weights, *nets.biases))
        hours = brief.lookahead_h + 2
        numbers = np.zeros(NUMBERS)
        numbers[HOUR] = -1.0
        numbers[LAST_START_S] = np.inf if brief.drained else brief.window_s
        numbers[WINDOW_S], numbers[START_H], numbers[ASK_S] = brief.window_s, brief.start.hour, self.ask_s
        numbers[TEMPERATURE], numbers[PRICE_SCALE] = self.temperature, self.price_scale
        numbers[NOTE_ROOM], numbers[RESIDUAL] = self.notes, self.residual
        numbers[STATE_ONLY], numbers[DEVIATE] = self.state_only, self.deviate
        numbers[HIDDEN_1], numbers[HIDDEN_2] = nets.weights[0].shape[2], nets.weights[1].shape[2]
        numbers[PRICE_HIDDEN], numbers[PRICE_AT] = nets.price_weights[0].shape[2], price_at
        width = max(NOTE, PRICE_INPUTS, *(weight.shape[2] for weight in (*nets.weights, *nets.price_weights)))
        return RuleMemory.make(
            numbers=numbers,
            table=np.zeros((5 * sites + 1, max(hours, OPTION))),
            index=np.zeros((hours * ENTRIES, 2 * sites), np.int64),
            random_state=int(rng.integers(2**63)),
            weights=nets.flat,
            scratch=np.zeros((WORK + self.notes, width)),
            job_numbers=(0.0, 0.0),
            job_index=(-1, 0, 0, 0),
        )

    @property
    def noted(self) -> tuple[F4, int]:
        """Notes of the questions that left a choice, [questions, NOTE], as far as there was room, and how many."""
        count = int(self.memory.number_P[NOTED])
        return self.memory.scratch_XY[WORK : WORK + min(count, self.notes), :NOTE], count
