"""The batch engine: many runs side by side, one compiled call a step, with observations, masks and rewards."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.addresses import disagreement
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.decision.cluster.observation import Observation
from noonward.decision.cluster.view import ASK_RUNNING, ORACLE, Answers, ClusterView
from noonward.engine.cluster.build import (
    build_world,
    forecast_issuer,
    issue_forecasts,
    with_more_journeys,
    with_more_segments,
    with_more_slots,
)
from noonward.engine.cluster.emit import emit
from noonward.engine.cluster.kernels import batch
from noonward.engine.cluster.kernels.batch import Board
from noonward.engine.cluster.kernels.world import (
    AS_EARNED,
    AT_START,
    NO_REWARDS,
    OWN,
    PARTS,
    PLACE,
    World,
    arrays_of,
    note_world,
)
from noonward.engine.cluster.moving import GROWING, MOVING, PROVIDED, moving, with_moving
from noonward.errors import InfeasibleActionError, ScenarioError, nearest
from noonward.forecasts.forecast import Forecast
from noonward.ledger.segments import Outcome
from noonward.ledger.utility import utility_usd
from noonward.model.cluster.environment import Environment

Reward = Literal["utility", "at-start", "own"]
STATE_FORMAT: Final = 9
PROVIDE: Final = {
    batch.LACKS_JOURNEYS: with_more_journeys,
    batch.LACKS_SLOTS: with_more_slots,
    batch.LACKS_SEGMENTS_FIRST: with_more_segments,
    batch.LACKS_SEGMENTS: with_more_segments,
}
"""How a world is provided with what it lacks."""


class BatchEngine:
    """Runs side by side that pause, ask and are answered together (protocols: ``ClusterEngine``).

    Question: under ``each-slot`` the agents are the sites, each asked about the next job of its queue
    (``asked_BN``); under ``on-arrival`` there is one agent, the dispatcher, asked about the job that arrives. Where the
    observation shows running jobs (``running``), the sites are also asked about their running jobs that may be
    suspended, as schedulers with the lever ``suspend`` are (ASK_RUNNING).

    Choices: under ``each-slot`` 0 = hold, 1 + s = site s (start now at the own site, else move); of a running job 0 =
    it runs on, 1 + its own site = it is suspended. Under ``on-arrival``
    ``site x G + gang - 1`` with G = ``observation.gpus_max``, the clock by the oracle; with F = ``observation.levels``
    clock levels to choose from ``(site x G + gang - 1) x F + level``. ``mask_BNA`` marks what is feasible. Under
    ``on-arrival`` a site with room for the job's smallest gang, with a gang between that and what is free; where no
    feasible site has room, every feasible site with every gang (the job queues there); clocks: all the site has.

    Reward, per row, since the row's last question, USD. ``utility``: growth of the utility U1 - U2 - U3 - U4 - U5.
    ``at-start``: a job's whole value (revenue less energy and carbon of its run at the true signals, less its result's
    journey) when it starts, journeys when they leave, free power as time passes. Both sum to the ledger's utility,
    the first reading (from the start to the first question) included. ``own``: ``reward_B`` as under ``at-start``, and
    each agent earns its own part in ``reward_BN``. A job's whole value over leaving its GPUs free goes to the site that
    starts it, the cost of its journey to the site that sends it (under ``on-arrival`` the dispatcher gets both).
    ``job_usd`` says the same by job. Own parts and the utility of an idle fleet sum to the ledger's utility; under the
    other rewards ``reward_BN`` repeats ``reward_B``. NaN where the scenario has no signals or no economics: there is no
    utility.

    End: ``done_B`` is set when a row's run has ended, its reward is the last one and its observation and masks are
    zero; the row rests (reward 0) until ``reset``.

    Attributes:
        agents: Agents N.
        choices: Choices A.
        global_BG: Global part of the observation, float32.
        own_BNO: Own parts, float32.
        mask_BNA: 1 where a choice is feasible; zeros for agents that are not asked.
        asked_BN: Agents that are asked.
        reward_B: Reward since the row's last question, USD.
        reward_BN: What each agent has earned since then, USD.
        elapsed_s_B: Time since the row's last question, s.
        now_s_B: Time of the question, seconds since the row's start.
        done_B: Rows whose run has ended.
        environments: Environment of each row.
        seeds: Seed of each row's stream ``forecast``.

    All arrays are live: each step overwrites them.

    Args:
        environments: What each row runs: the same protocol, sites and ingress points.
        observation: What agents are shown.
        seeds: Seed of each row's stream ``forecast``.
        reward: ``utility``, ``at-start`` or ``own``.
        forecast: Forecast that is shown; needed where the observation shows forecasts.

    Raises:
        ScenarioError: The environments do not fit each other or the observation, or the reward does not fit it.
        ValueError: No environment, another number of seeds, or an unknown reward.
    """

    def __init__(
        self,
        environments: Sequence[Environment],
        observation: Observation,
        *,
        seeds: Sequence[int],
        reward: Reward = "utility",
        forecast: Forecast | None = None,
    ) -> None:
        if not environments or len(environments) != len(seeds):
            raise ValueError(
                f"{len(environments)} environments and {len(seeds)} seeds; give at least one of each, as many of both"
            )
        if reward not in get_args(Reward):
            raise ValueError(f"unknown reward {reward!r}; {nearest(str(reward), get_args(Reward))}")
        if observation.forecast_h and forecast is None:
            raise ScenarioError(
                f"the observation shows {observation.forecast_h} hours of forecast, but no forecast was given; "
                "give forecast=Forecast(...)"
            )
        self.observation, self.reward, self.forecast = observation, reward, forecast
        self.environments, self.seeds = list(environments), list(seeds)
        if observation.running and reward != "utility":
            raise ScenarioError(
                f"reward {reward!r} counts a job's whole run when it starts, which a suspension changes; with an "
                "observation that shows running jobs use reward='utility'"
            )
        self._needs = Needs(forecast=forecast, lookahead_h=observation.forecast_h + 1, levers=observation.levers)
        first = environments[0]
        sites, points, rows = len(first.sites), len(first.fleet.ingress_points), len(environments)
        each_slot = first.protocol == "each-slot"
        self.agents = sites if each_slot else 1
        self.choices = observation.choices(sites)
        self.global_BG = np.zeros((rows, observation.global_size(sites, points)), np.float32)
        self.own_BNO = np.zeros((rows, self.agents, observation.own_size(sites)), np.float32)
        self.mask_BNA = np.zeros((rows, self.agents, self.choices), np.uint8)
        self.asked_BN = np.zeros((rows, self.agents), np.bool_)
        self.reward_B, self.elapsed_s_B, self.now_s_B = np.zeros(rows), np.zeros(rows), np.zeros(rows)
        self.reward_BN = np.zeros((rows, self.agents))
        self.done_B = np.zeros(rows, np.bool_)
        self._board = Board(*(getattr(self, name) for name in Board._fields))
        self._place_B = np.zeros(rows, PLACE)
        self._numbers_BP = np.zeros((rows, len(observation.numbers(Brief.of(first, self._needs)))))
        self._step_rows = batch.step_rows_each_slot if each_slot else batch.step_rows_on_arrival
        self._observe_rows = batch.observe_rows_each_slot if each_slot else batch.observe_rows_on_arrival
        self._issuers: list[ForecastIssuer | None] = [None] * rows
        self._worlds = [self._world(b, *each) for b, each in enumerate(zip(environments, seeds, strict=True))]
        self._open(0, rows)

    @property
    def rows(self) -> int:
        """Number of rows B."""
        return len(self.environments)

    @property
    def places(self) -> NDArray[np.void]:
        """Where the rows' arrays lie (live): PLACE records, for compiled readers such as ``ServiceMeter``."""
        return self._place_B

    def step(self, choice_BN: NDArray[np.int64]) -> None:
        """Carries out all rows' choices and runs every live row to its next question.

        Args:
            choice_BN: Choice per row and agent; not read where an agent is not asked.

        Raises:
            InfeasibleActionError: A choice is infeasible; nothing has changed in any row.
            ValueError: The choices are no integers of shape (rows, agents).
        """
        given = np.asarray(choice_BN)
        if given.shape != self.asked_BN.shape or given.dtype.kind not in "iu":
            raise ValueError(
                f"choices of shape {given.shape} and type {given.dtype}; give integers of shape "
                f"(rows, agents) = {self.asked_BN.shape}"
            )
        given = np.ascontiguousarray(given, np.int64)
        wrong = self._run_rows(given, 0, self.rows)
        if wrong >= 0:
            row, agent = divmod(wrong, self.agents)
            raise self._infeasible(row, agent, int(given[row, agent]))

    def reset(self, row: int, environment: Environment, seed: int) -> None:
        """Restarts a row and runs it to its first question; the other rows do not change.

        Args:
            row: Row.
            environment: What it runs.
            seed: Seed of its stream ``forecast``.

        Raises:
            ScenarioError: The environment does not fit the others or the observation.
        """
        self._worlds[row] = self._world(row, environment, seed)
        self.environments[row], self.seeds[row] = environment, seed
        self._open(row, row + 1)

    def row_view(self, row: int) -> ClusterView:
        """Returns the view of a row (live), so that any scheduler can be asked about it."""
        return self._worlds[row].shown

    def row_answers(self, row: int) -> Answers:
        """Returns where a scheduler answers about a row; ``choices_of`` turns its answers into choices."""
        return self._worlds[row].answers

    def choices_of(self, row: int) -> NDArray[np.int64]:
        """Returns the choices that say what ``row_answers`` hold, shape (agents,).

        Under ``each-slot`` a choice starts the largest gang with room at the oracle's clock; under ``on-arrival`` a
        gang of 0 (all the job can use) is the largest of the choices. Where clocks are choices, the oracle's stands for
        its level; else other clocks have no choice. Earliest starts have none.
        """
        answer_N = self.row_answers(row).answer_N
        if self.observation.protocol == "each-slot":
            return np.array(answer_N["choice"])
        largest = self.observation.gpus_max
        site, gpus, level = int(answer_N["choice"][0]) - 1, int(answer_N["gpus"][0]), int(answer_N["level"][0])
        if gpus == 0:
            gangs_GF = self.mask_BNA[row, 0].reshape(-1, largest, self.observation.clocks)[site]
            feasible = np.flatnonzero(gangs_GF.any(1))
            gpus = int(feasible[-1]) + 1 if len(feasible) else largest
        if level == ORACLE and self.observation.levels:
            view = self.row_view(row)
            level = int(view.oracle_SCG[site, view.job_J["class_"][view.job], gpus])
        return np.array([self.observation.choice_of(site, gpus, level)])

    def answer(self, row: int, choice_N: NDArray[np.int64]) -> None:
        """Writes the answers that say what choices say into ``row_answers``, as ``step`` does; nothing is carried out.

        Args:
            row: Row.
            choice_N: Choices; those of agents that are not asked are not read.
        """
        answers = self.row_answers(row)
        for n in range(self.agents):
            answers.hold(n)
        asked_N = self.asked_BN[row]
        if self.observation.protocol == "each-slot":
            answers.answer_N["choice"][asked_N] = choice_N[asked_N]
        elif asked_N[0]:
            site, gpus, level = self.observation.parts(int(choice_N[0]))
            answers.send(0, site, gpus=gpus, level=level)

    def outcome(self, row: int) -> Outcome:
        """Returns what has happened in a row so far."""
        return emit(self.environments[row], self._worlds[row])

    def migration_usd(self) -> F8:
        """Returns what each row's jobs have paid for their journeys so far, emissions included (U4), USD, [B]."""
        out_B = np.empty(self.rows)
        for b, world in enumerate(self._worlds):
            engine, usd_per_t = world.engine_1[0], world.shown.run_1[0]["carbon_usd_per_t"]
            out_B[b] = -utility_usd(0.0, usd_per_t, kg=engine["move_kg"], journeys_usd=engine["move_usd"])
        return out_B

    def job_usd(self, row: int) -> F8:
        """Returns what the decisions about each job of a row have earned so far (reward ``own``), USD, by serial, [J].

        A job counts whole when it starts: its value over leaving its GPUs free, its result's journey included. Its own
        journeys count as they begin.
        """
        return self._worlds[row].job_usd_R.copy()

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Returns a copy of all that changes; the environments are not in it.

        Keys: ``format``, the names of the shown arrays, and ``row/array`` for the rows.
        """
        out: dict[str, NDArray[np.generic]] = {"format": np.array(STATE_FORMAT)}
        out |= {name: array.copy() for name, array in self._board._asdict().items()}
        for b, world in enumerate(self._worlds):
            out |= {f"{b}/{name}": array.copy() for name, array in moving(world).items()}
            out[f"{b}/digest"] = np.array(self._digest(b))
        return out

    def load_state(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Restores from ``state()``, bit for bit, in an engine of the same environments, seeds and options.

        Raises:
            ScenarioError: The state is of another format, of other environments or of other options; nothing has
                changed.
        """
        mine = self.state()
        if set(mine) != set(state) or any(
            state[name].dtype != array.dtype
            or (np.shape(state[name]) != array.shape and name.split("/")[-1] not in GROWING)
            for name, array in mine.items()
        ):
            raise ScenarioError(
                "the state is of another batch: its format, number of rows, sites, jobs or observation differ; build "
                "the engine from the environments and options it was saved with"
            )
        for b in range(self.rows):
            if state[f"{b}/digest"] != mine[f"{b}/digest"]:
                raise ScenarioError(
                    f"row {b} of the state ran another environment or forecast; build the engine from those it had"
                )
        for name, array in self._board._asdict().items():
            array[:] = state[name]
        for b, world in enumerate(self._worlds):
            self._show(b, with_moving(world, {name: state[f"{b}/{name}"] for name in MOVING}))

    def _run_rows(self, choice_BN: NDArray[np.int64], first: int, until: int) -> int:
        """Runs some rows to their next questions; returns row x agents + agent of an infeasible choice, or -1."""
        shown = self._place_B, self._board, self._numbers_BP
        code = int(self._step_rows(*shown, choice_BN, first, until))
        begin, unissued = first, code == -2
        while code < -2:
            row, what = divmod(-3 - code, batch.LACKS)
            self._show(row, PROVIDE[what](self._worlds[row]))
            begin, unissued = (row, True) if what in (batch.LACKS_SLOTS, batch.LACKS_SEGMENTS) else (begin, unissued)
            code = int(self._step_rows(*shown, choice_BN, begin, until))
        if unissued or code == -2:
            for world, issuer in zip(self._worlds[first:until], self._issuers[first:until], strict=True):
                if world.engine_1["unissued"][0]:
                    issue_forecasts(world, issuer)
            self._observe_rows(*shown, first, until)
        return max(code, -1)

    def _show(self, row: int, world: World) -> None:
        """Puts a world in a row and notes where its arrays lie."""
        self._worlds[row] = world
        self._place_B[row] = _place(world)

    def _digest(self, row: int) -> int:
        """Returns a checksum of what a row is made from: jobs, signals, tables, and the forecast with its seed."""
        digest = zlib.crc32(f"{self.forecast} {self.seeds[row]}".encode())
        for name, array in arrays_of(self._worlds[row]).items():
            if name not in (*MOVING, *PROVIDED):
                digest = zlib.crc32(np.ascontiguousarray(array).tobytes(), digest)
        return digest

    def _open(self, first: int, until: int) -> None:
        """Runs some fresh rows to their first question."""
        self.asked_BN[first:until] = False
        no_choice_BN = np.zeros(self.asked_BN.shape, np.int64)
        self._run_rows(no_choice_BN, first, until)

    def _world(self, row: int, environment: Environment, seed: int) -> World:
        """Returns a row's world at second 0 and notes where its arrays lie."""
        first = self.environments[0]
        same = (environment.protocol, environment.sites, environment.fleet.ingress_points)
        if same != (first.protocol, first.sites, first.fleet.ingress_points):
            raise ScenarioError(
                f"row {row} runs scenario {environment.scenario!r} with protocol {environment.protocol} and sites "
                f"{', '.join(environment.sites)}; all rows need the protocol {first.protocol}, the sites "
                f"{', '.join(first.sites)} and the same ingress points"
            )
        if environment.learns_run_times:
            raise ScenarioError(
                f"row {row} runs scenario {environment.scenario!r}, whose schedulers learn run times as jobs end, "
                "which batches do not; set jobs.knowledge.run_time to known, limit or class-mean"
            )
        brief = Brief.of(environment, self._needs)
        numbers_P = self.observation.numbers(brief)
        kinds = {"utility": AS_EARNED, "at-start": AT_START, "own": OWN}
        has_utility = environment.signals is not None and environment.economics is not None
        rewards = kinds[self.reward] if has_utility else NO_REWARDS
        world = build_world(environment, self._needs, brief, rewards=rewards)
        self._issuers[row] = forecast_issuer(environment, self._needs, seed)
        if environment.protocol == "each-slot":
            self.mask_BNA[row] = 0
            world = world._replace(shown=world.shown._replace(mask_NA=self.mask_BNA[row]))
        self._numbers_BP[row] = numbers_P
        self._place_B[row] = _place(world)
        self.now_s_B[row] = 0.0
        self.done_B[row] = False
        return world

    def _infeasible(self, row: int, agent: int, choice: int) -> InfeasibleActionError:
        environment, view = self.environments[row], self.row_view(row)
        if environment.protocol == "each-slot":
            names = ["hold", *environment.sites]
            if view.kind == ASK_RUNNING:
                names = ["run on", *("suspend" if n == agent else "no choice" for n in range(self.agents))]
            asked = f"site {environment.sites[agent]}"
        else:
            parts = [self.observation.parts(each) for each in range(self.choices)]
            names = [
                f"{environment.sites[site]} with {gpus} GPU{'s' * (gpus != 1)}"
                + (f" at clock level {level}" if level != ORACLE else "")
                for site, gpus, level in parts
            ]
            asked = "the dispatcher"
        allowed = ", ".join(f"{i} ({names[i]})" for i in np.flatnonzero(self.mask_BNA[row, agent]))
        what = names[choice] if 0 <= choice < len(names) else "no such choice"
        return InfeasibleActionError(
            f"row {row} (environment {environment.index}), agent {agent} ({asked}), job {view.serial_N[agent]} at "
            f"{view.now_s:g} s: choice {choice} ({what}); feasible now: {allowed}; choose only what mask_BNA marks"
        )


def _place(world: World) -> NDArray[np.void]:
    """Returns where a world's arrays lie; they must stay alive as long as it is used."""
    place_1 = np.zeros(1, PLACE)
    disagree = note_world(world, place_1.ctypes.data)
    assert not disagree, disagreement(PARTS, world)
    return place_1[0]
