"""Replay: one ring of the decision steps of all runs, and the transitions of every agent over it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from noonward.arrays import F4, F8, I8, Bools
from noonward.errors import ScenarioError
from noonward.learn.core.experience import Dimensions, Moment, Transition
from noonward.learn.core.masking import with_hold
from noonward.learn.core.settings import Steps


class Batch(NamedTuple):
    """A batch of transitions per agent, drawn independently for each (Algorithm 1, line 16)."""

    seen_NBI: F4
    """What all agents and what the agent itself saw."""
    mask_NBA: Bools
    """Feasible choices; hold alone where the agent was not asked."""
    asked_NB: Bools
    choice_NB: I8
    reward_NB: F8
    """Discounted reward until the next moment, USD."""
    cost_NBK: F8
    """Discounted constraint costs until the next moment."""
    discount_NB: F8
    """Discount of the value of the next moment; 0 where the run ended."""
    next_seen_NBI: F4
    next_mask_NBA: Bools
    weight_NB: F8
    """Weight in the loss: 1, or 0 for an agent without any transition."""


class Replay:
    """Ring of decision steps; what all agents see is stored once.

    A transition of agent n starts at step k with its choice, collects ``sum_i (prod_{j<i} g_j) r_i`` with
    ``g = gamma`` (or ``gamma^(elapsed / slot)``), and ends with the agent's next question (``joint``: the next decision
    step), or with the run (no value follows) or where the episode is cut (the value follows). Under ``own`` a
    transition that is open at a cut is dropped if the agent is not asked there: no value it ever learned follows.

    Args:
        dimensions: Sizes.
        capacity: Steps kept, C.
        gamma: Discount.
        span: What a transition spans.
        per_slot: Whether ``gamma`` discounts a slot of time rather than a decision step.

    Raises:
        ScenarioError: The capacity is below 1.
    """

    def __init__(
        self,
        dimensions: Dimensions,
        *,
        capacity: int,
        gamma: float,
        span: Steps = "joint",
        per_slot: bool = False,
    ) -> None:
        if capacity < 1:
            raise ScenarioError(f"replay of {capacity} steps; it must hold at least 1")
        d = self.dimensions = dimensions
        self.capacity, self.gamma, self.span, self.per_slot = capacity, gamma, span, per_slot
        self.global_CG = np.zeros((capacity, d.global_size), np.float32)
        self.own_CNO = np.zeros((capacity, d.agents, d.own_size), np.float32)
        self.mask_CNA = np.zeros((capacity, d.agents, d.choices), np.bool_)
        self.asked_CN = np.zeros((capacity, d.agents), np.bool_)
        self.choice_CN = np.zeros((capacity, d.agents), np.int16)
        self.gain_CNK = np.zeros((capacity, d.agents, 1 + d.columns))
        self.discount_CN = np.zeros((capacity, d.agents))
        self.next_CN = np.zeros((capacity, d.agents), np.int64)
        self.valid_CN = np.zeros((capacity, d.agents), np.bool_)
        self.valid_N = np.zeros(d.agents, np.int64)
        self.count = 0
        """Steps stored so far, overwritten ones included; step k lies in slot k % C."""
        self._begin_rows(0)

    def _begin_rows(self, rows: int) -> None:
        """Prepares for so many runs side by side; none has begun."""
        d = self.dimensions
        self.row_B = np.full(rows, -1, np.int64)
        self.open_BN = np.full((rows, d.agents), -1, np.int64)
        self.open_gain_BNK = np.zeros((rows, d.agents, 1 + d.columns))
        self.open_discount_BN = np.zeros((rows, d.agents))

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
        self.global_CG[slot] = moment.global_BG[rows]
        self.own_CNO[slot] = moment.own_BNO[rows]
        asked = moment.asked_BN[rows]
        self.mask_CNA[slot] = with_hold(moment.mask_BNA[rows], asked)
        self.asked_CN[slot] = asked
        return number

    def _open(self, slot_B: I8) -> None:
        """Opens a transition of each run's agents at their current step."""
        opens_BN = self.asked_CN[slot_B] if self.span == "own" else np.ones_like(self.asked_CN[slot_B])
        b, n = np.nonzero(opens_BN)
        self.open_BN[b, n] = self.row_B[b]
        self.open_gain_BNK[b, n] = 0.0
        self.open_discount_BN[b, n] = 1.0

    def _earn(self, transition: Transition) -> None:
        """Adds a step's reward and costs to all open transitions."""
        gain_BK = np.column_stack([transition.reward_B, transition.cost_BK])
        factor_B = np.full(len(gain_BK), self.gamma)
        if self.per_slot:
            factor_B = self.gamma ** (transition.elapsed_s_B / self.dimensions.slot_s)
        self.open_gain_BNK += self.open_discount_BN[..., None] * gain_BK[:, None, :]
        self.open_discount_BN *= factor_B[:, None]

    def _close(self, ended_B: Bools, cut_B: Bools, asked_BN: Bools) -> None:
        """Closes the transitions whose end has come, and drops those that have none."""
        tick_BN = asked_BN if self.span == "own" else np.ones_like(asked_BN)
        is_open_BN = self.open_BN >= 0
        closes_BN = is_open_BN & (ended_B[:, None] | tick_BN)
        b, n = np.nonzero(closes_BN)
        number = self.open_BN[b, n]
        alive = number >= self.count - self.capacity
        b, n, slot = b[alive], n[alive], number[alive] % self.capacity
        self.gain_CNK[slot, n] = self.open_gain_BNK[b, n]
        self.discount_CN[slot, n] = np.where(ended_B[b], 0.0, self.open_discount_BN[b, n])
        self.next_CN[slot, n] = np.where(ended_B[b], slot, self.row_B[b] % self.capacity)
        self.valid_CN[slot, n] = True
        self.valid_N += np.bincount(n, minlength=len(self.valid_N))
        self.open_BN[closes_BN | (is_open_BN & cut_B[:, None])] = -1

    def sample(self, rng: np.random.Generator, batch: int, reach: int = 1) -> Batch:
        """Draws a batch of transitions for every agent, each on its own.

        Args:
            rng: Random numbers.
            batch: Transitions per agent.
            reach: Transitions that rewards, costs and discount of one reach over: n of n-step targets (Sutton and Barto
                2018, Sec. 7.1). Fewer where the run ends or is cut, or where the ring does not have the next one yet.

        Raises:
            ScenarioError: No agent has any transition yet.
        """
        if not self.valid_N.any():
            raise ScenarioError("the replay holds no transition yet; collect more steps before the first update")
        agents = self.dimensions.agents
        slot_NB = np.zeros((agents, batch), np.int64)
        for n in range(agents):
            if self.valid_N[n]:
                slot_NB[n] = self._draw(n, batch, rng)
        weight_NB = np.broadcast_to((self.valid_N > 0)[:, None].astype(float), slot_NB.shape)
        return self._gather(slot_NB, weight_NB, reach)

    def _draw(self, agent: int, batch: int, rng: np.random.Generator) -> I8:
        """Draws slots of an agent's transitions, each as likely as any other."""
        slots: list[I8] = []
        missing, share = batch, self.valid_N[agent] / len(self)
        while missing > 0:
            drawn = rng.integers(len(self), size=int(1.2 * missing / share) + 8)
            slots.append(drawn[self.valid_CN[drawn, agent]][:missing])
            missing -= len(slots[-1])
        return np.concatenate(slots)

    def _gather(self, slot_NB: I8, weight_NB: F8, reach: int = 1) -> Batch:
        """Returns the transitions in some slots, each over ``reach`` transitions."""
        agent_N1 = np.arange(len(slot_NB))[:, None]
        next_NB, gain_NBK = self.next_CN[slot_NB, agent_N1], self.gain_CNK[slot_NB, agent_N1]
        discount_NB = self.discount_CN[slot_NB, agent_N1]
        for _ in range(reach - 1):
            reaches_NB = (discount_NB > 0.0) & self.valid_CN[next_NB, agent_N1]
            more_NBK = discount_NB[..., None] * self.gain_CNK[next_NB, agent_N1]
            gain_NBK = np.where(reaches_NB[..., None], gain_NBK + more_NBK, gain_NBK)
            discount_NB = np.where(reaches_NB, discount_NB * self.discount_CN[next_NB, agent_N1], discount_NB)
            next_NB = np.where(reaches_NB, self.next_CN[next_NB, agent_N1], next_NB)
        return Batch(
            seen_NBI=self._seen(slot_NB),
            mask_NBA=self.mask_CNA[slot_NB, agent_N1],
            asked_NB=self.asked_CN[slot_NB, agent_N1],
            choice_NB=self.choice_CN[slot_NB, agent_N1].astype(np.int64),
            reward_NB=gain_NBK[..., 0],
            cost_NBK=gain_NBK[..., 1:],
            discount_NB=discount_NB,
            next_seen_NBI=self._seen(next_NB),
            next_mask_NBA=self.mask_CNA[next_NB, agent_N1],
            weight_NB=weight_NB,
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

    RING: Final = (
        "global_CG",
        "own_CNO",
        "mask_CNA",
        "asked_CN",
        "choice_CN",
        "gain_CNK",
        "discount_CN",
        "next_CN",
        "valid_CN",
    )
    ROWS: Final = ("row_B", "open_BN", "open_gain_BNK", "open_discount_BN", "valid_N")

    def state(self) -> dict[str, Any]:
        """Returns the filled part of the ring and the open transitions."""
        kept = {name: getattr(self, name)[: len(self)] for name in self.RING}
        return {**kept, **{name: getattr(self, name) for name in self.ROWS}, "count": self.count}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""
        self.count = int(state["count"])
        for name in self.RING:
            getattr(self, name)[: len(self)] = state[name]
        for name in self.ROWS:
            setattr(self, name, np.array(state[name]))
