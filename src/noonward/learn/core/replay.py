"""Replay: one ring of the decision steps of all runs, and the transitions of every agent over it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from noonward.arrays import F4, F8, I8, Bools
from noonward.errors import ScenarioError
from noonward.learn.algorithms.algorithm import Dimensions, Moment, Transition
from noonward.learn.core.masking import with_hold
from noonward.learn.core.priorities import Priorities
from noonward.learn.train.config import Steps

SMALLEST_PRIORITY: Final = 1e-3
"""Added to errors, so that no transition is lost for good."""


class Batch(NamedTuple):
    """A batch of transitions per agent, drawn independently for each (Algorithm 1, line 16)."""

    seen_NBI: F4
    """What all agents and what the agent itself saw."""
    mask_NBA: Bools
    """Feasible choices; hold alone where the agent was not asked."""
    asked_NB: Bools
    advice_NB: I8
    choice_NB: I8
    reward_NB: F8
    """Discounted reward until the next moment, USD."""
    cost_NBK: F8
    """Discounted constraint costs until the next moment."""
    discount_NB: F8
    """Discount of the value of the next moment; 0 where the run ended."""
    next_seen_NBI: F4
    next_mask_NBA: Bools
    next_advice_NB: I8
    weight_NB: F8
    """Weight in the loss: 1, or the correction for priorities; 0 for an agent without any transition."""
    slot_NB: I8
    """Where the transitions lie; for ``Replay.reprioritise``."""


class Replay:
    """Ring of decision steps; what all agents see is stored once.

    A transition of agent n starts at step k with its choice, collects ``sum_i (prod_{j<i} g_j) r_i`` with
    ``g = gamma`` (or ``gamma^(elapsed / slot)``), and ends ``steps`` questions later (``joint``: decision steps), or
    with the run (no value follows) or where the episode is cut (the value follows). Under ``own`` a transition that is
    open at a cut is dropped if the agent is not asked there: no value it ever learned follows.

    Args:
        dimensions: Sizes.
        capacity: Steps kept, C.
        gamma: Discount.
        span: What a transition spans.
        steps: Questions (decision steps) a transition spans, at least 1.
        per_slot: Whether ``gamma`` discounts a slot of time rather than a decision step.
        priority: Exponent of priorities; 0: uniform.
        priority_correction: Exponent of the correction of weights, ``(F p)^-x`` over its largest.

    Raises:
        ScenarioError: Capacity or steps are below 1.
    """

    def __init__(
        self,
        dimensions: Dimensions,
        *,
        capacity: int,
        gamma: float,
        span: Steps = "joint",
        steps: int = 1,
        per_slot: bool = False,
        priority: float = 0.0,
        priority_correction: float = 0.5,
    ) -> None:
        if capacity < 1 or steps < 1:
            raise ScenarioError(f"replay of {capacity} steps with transitions over {steps}; both must be at least 1")
        d = self.dimensions = dimensions
        self.capacity, self.gamma, self.span, self.steps = capacity, gamma, span, steps
        self.per_slot, self.priority, self.correction = per_slot, priority, priority_correction
        self.global_CG = np.zeros((capacity, d.global_size), np.float32)
        self.own_CNO = np.zeros((capacity, d.agents, d.own_size), np.float32)
        self.mask_CNA = np.zeros((capacity, d.agents, d.choices), np.bool_)
        self.asked_CN = np.zeros((capacity, d.agents), np.bool_)
        self.advice_CN = np.zeros((capacity, d.agents), np.int16)
        self.choice_CN = np.zeros((capacity, d.agents), np.int16)
        self.gain_CNK = np.zeros((capacity, d.agents, 1 + len(d.costs)))
        self.discount_CN = np.zeros((capacity, d.agents))
        self.next_CN = np.zeros((capacity, d.agents), np.int64)
        self.valid_CN = np.zeros((capacity, d.agents), np.bool_)
        self.valid_N = np.zeros(d.agents, np.int64)
        self.count = 0
        """Steps stored so far, overwritten ones included; step k lies in slot k % C."""
        self.priorities = Priorities(d.agents, capacity) if priority > 0 else None
        self._begin_rows(0)

    @classmethod
    def of(cls, dimensions: Dimensions, config: Any) -> Replay:
        """Returns the replay that an algorithm's settings ask for, by their fields of the arguments' names."""
        return cls(
            dimensions,
            capacity=config.capacity,
            gamma=config.gamma,
            span=config.span,
            steps=config.n_steps,
            per_slot=config.per_slot,
            priority=config.priority,
            priority_correction=config.priority_correction,
        )

    def _begin_rows(self, rows: int) -> None:
        """Prepares for so many runs side by side; none has begun."""
        d, steps = self.dimensions, self.steps
        self.row_B = np.full(rows, -1, np.int64)
        self.open_BNT = np.full((rows, d.agents, steps), -1, np.int64)
        self.open_gain_BNTK = np.zeros((rows, d.agents, steps, 1 + len(d.costs)))
        self.open_discount_BNT = np.zeros((rows, d.agents, steps))
        self.ticks_BNT = np.zeros((rows, d.agents, steps), np.int64)

    def __len__(self) -> int:
        """Steps that are in the ring."""
        return min(self.count, self.capacity)

    def observe(self, transition: Transition) -> None:
        """Takes in a decision step of B runs."""
        ended_B, cut_B = transition.ended_B, transition.cut_B & ~transition.ended_B
        if len(self.row_B) != len(ended_B):
            self._begin_rows(len(ended_B))
        fresh = np.flatnonzero(self.row_B < 0)
        if len(fresh):
            self.row_B[fresh] = self._append(fresh, transition.before)
        slot_B = self.row_B % self.capacity
        self.choice_CN[slot_B] = transition.choice_BN
        self._open(slot_B)
        self._earn(transition)
        following = np.flatnonzero(~ended_B)
        self.row_B[ended_B] = -1
        self.row_B[following] = self._append(following, transition.after)
        self._close(ended_B, cut_B, transition.after.asked_BN)
        self.row_B[cut_B] = -1

    def _append(self, rows: I8, moment: Moment) -> I8:
        """Stores what some runs see; returns the numbers of the steps."""
        number = self.count + np.arange(len(rows))
        self.count += len(rows)
        slot = number % self.capacity
        gone = self.valid_CN[slot]
        if gone.any():
            self.valid_N -= gone.sum(0)
            self.valid_CN[slot] = False
            if self.priorities is not None:
                where, agent = np.nonzero(gone)
                self.priorities.put(agent, slot[where], 0.0)
        self.global_CG[slot] = moment.global_BG[rows]
        self.own_CNO[slot] = moment.own_BNO[rows]
        asked = moment.asked_BN[rows]
        self.mask_CNA[slot] = with_hold(moment.mask_BNA[rows], asked)
        self.asked_CN[slot] = asked
        self.advice_CN[slot] = moment.advice_BN[rows]
        return number

    def _open(self, slot_B: I8) -> None:
        """Opens a transition of each run's agents at their current step."""
        opens_BN = self.asked_CN[slot_B] if self.span == "own" else np.ones_like(self.asked_CN[slot_B])
        b, n = np.nonzero(opens_BN)
        t = self.open_BNT[b, n].argmin(-1)  # -1: a free place; never more than `steps` are open
        self.open_BNT[b, n, t] = self.row_B[b]
        self.open_gain_BNTK[b, n, t] = 0.0
        self.open_discount_BNT[b, n, t] = 1.0
        self.ticks_BNT[b, n, t] = 0

    def _earn(self, transition: Transition) -> None:
        """Adds a step's reward and costs to all open transitions."""
        gain_BK = np.column_stack([transition.reward_B, transition.cost_BK])
        factor_B = np.full(len(gain_BK), self.gamma)
        if self.per_slot:
            factor_B = self.gamma ** (transition.elapsed_s_B / self.dimensions.slot_s)
        self.open_gain_BNTK += self.open_discount_BNT[..., None] * gain_BK[:, None, None, :]
        self.open_discount_BNT *= factor_B[:, None, None]

    def _close(self, ended_B: Bools, cut_B: Bools, asked_BN: Bools) -> None:
        """Closes the transitions whose end has come, and drops those that have none."""
        tick_BN = asked_BN if self.span == "own" else np.ones_like(asked_BN)
        self.ticks_BNT += tick_BN[:, :, None]
        is_open = self.open_BNT >= 0
        closes = is_open & (
            ended_B[:, None, None]
            | (cut_B[:, None, None] & tick_BN[:, :, None])
            | ((self.ticks_BNT >= self.steps) & tick_BN[:, :, None])
        )
        b, n, t = np.nonzero(closes)
        number = self.open_BNT[b, n, t]
        alive = number >= self.count - self.capacity
        b, n, t, slot = b[alive], n[alive], t[alive], number[alive] % self.capacity
        self.gain_CNK[slot, n] = self.open_gain_BNTK[b, n, t]
        self.discount_CN[slot, n] = np.where(ended_B[b], 0.0, self.open_discount_BNT[b, n, t])
        self.next_CN[slot, n] = np.where(ended_B[b], slot, self.row_B[b] % self.capacity)
        self.valid_CN[slot, n] = True
        self.valid_N += np.bincount(n, minlength=len(self.valid_N))
        if self.priorities is not None:
            self.priorities.put(n, slot, self.priorities.largest**self.priority)
        self.open_BNT[closes | (is_open & cut_B[:, None, None])] = -1

    def sample(self, rng: np.random.Generator, batch: int) -> Batch:
        """Draws a batch of transitions for every agent, each on its own.

        Args:
            rng: Random numbers.
            batch: Transitions per agent.

        Raises:
            ScenarioError: No agent has any transition yet.
        """
        if not self.valid_N.any():
            raise ScenarioError("the replay holds no transition yet; collect more steps before the first update")
        agents = self.dimensions.agents
        slot_NB, weight_NB = np.zeros((agents, batch), np.int64), np.zeros((agents, batch))
        for n in range(agents):
            if self.valid_N[n]:
                slot_NB[n], weight_NB[n] = self._draw(n, batch, rng)
        return self._gather(slot_NB, weight_NB)

    def _draw(self, agent: int, batch: int, rng: np.random.Generator) -> tuple[I8, F8]:
        """Draws slots of an agent's transitions and their weights."""
        if self.priorities is not None:
            slot, probability = self.priorities.draw(agent, batch, rng)
            weight = (self.valid_N[agent] * probability) ** -self.correction
            return slot, weight / weight.max()
        slots: list[I8] = []
        missing, share = batch, self.valid_N[agent] / len(self)
        while missing > 0:
            drawn = rng.integers(len(self), size=int(1.2 * missing / share) + 8)
            slots.append(drawn[self.valid_CN[drawn, agent]][:missing])
            missing -= len(slots[-1])
        return np.concatenate(slots), np.ones(batch)

    def _gather(self, slot_NB: I8, weight_NB: F8) -> Batch:
        """Returns the transitions in some slots."""
        agent_N1 = np.arange(len(slot_NB))[:, None]
        next_NB = self.next_CN[slot_NB, agent_N1]
        gain_NBK = self.gain_CNK[slot_NB, agent_N1]
        return Batch(
            seen_NBI=self._seen(slot_NB),
            mask_NBA=self.mask_CNA[slot_NB, agent_N1],
            asked_NB=self.asked_CN[slot_NB, agent_N1],
            advice_NB=self.advice_CN[slot_NB, agent_N1].astype(np.int64),
            choice_NB=self.choice_CN[slot_NB, agent_N1].astype(np.int64),
            reward_NB=gain_NBK[..., 0],
            cost_NBK=gain_NBK[..., 1:],
            discount_NB=self.discount_CN[slot_NB, agent_N1],
            next_seen_NBI=self._seen(next_NB),
            next_mask_NBA=self.mask_CNA[next_NB, agent_N1],
            next_advice_NB=self.advice_CN[next_NB, agent_N1].astype(np.int64),
            weight_NB=weight_NB,
            slot_NB=slot_NB,
        )

    def _seen(self, slot_NB: I8) -> F4:
        """Returns what all agents and what the agent itself saw, [N, B, G + O]."""
        d = self.dimensions
        agents, batch = slot_NB.shape
        out = np.empty((agents, batch, d.global_size + d.own_size), np.float32)
        shared = np.empty((agents * batch, d.global_size), np.float32)
        # mode="clip" lets take write straight into `out`; the slots are within the ring.
        np.take(self.global_CG, slot_NB.ravel(), axis=0, out=shared, mode="clip")
        out[..., : d.global_size] = shared.reshape(agents, batch, -1)
        if d.own_size:
            own = self.own_CNO.reshape(-1, d.own_size)
            mine = (slot_NB * agents + np.arange(agents)[:, None]).ravel()
            out[..., d.global_size :] = np.take(own, mine, axis=0).reshape(agents, batch, -1)
        return out

    def reprioritise(self, slot_NB: I8, error_NB: F8) -> None:
        """Sets the priorities of sampled transitions to ``(|error| + 0.001)^priority``; without priorities, nothing."""
        if self.priorities is None:
            return
        size_NB = np.abs(error_NB) + SMALLEST_PRIORITY
        self.priorities.largest = max(self.priorities.largest, float(size_NB.max()))
        agent_NB = np.broadcast_to(np.arange(len(slot_NB))[:, None], slot_NB.shape)
        known = self.valid_CN[slot_NB, agent_NB]
        self.priorities.put(agent_NB[known], slot_NB[known], size_NB[known] ** self.priority)

    RING: Final = (
        "global_CG",
        "own_CNO",
        "mask_CNA",
        "asked_CN",
        "advice_CN",
        "choice_CN",
        "gain_CNK",
        "discount_CN",
        "next_CN",
        "valid_CN",
    )
    ROWS: Final = ("row_B", "open_BNT", "open_gain_BNTK", "open_discount_BNT", "ticks_BNT", "valid_N")

    def state(self) -> dict[str, Any]:
        """Returns the filled part of the ring and the open transitions."""
        kept = {name: getattr(self, name)[: len(self)] for name in self.RING}
        more = {} if self.priorities is None else {"priorities": self.priorities.state()}
        return {**kept, **{name: getattr(self, name) for name in self.ROWS}, "count": self.count, **more}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""
        self.count = int(state["count"])
        for name in self.RING:
            getattr(self, name)[: len(self)] = state[name]
        for name in self.ROWS:
            setattr(self, name, np.array(state[name]))
        if self.priorities is not None:
            self.priorities.load_state(state["priorities"])
