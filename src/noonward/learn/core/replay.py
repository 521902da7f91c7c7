"""Replay: one ring of the decision steps of all runs, and the transitions of every agent over it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from noonward.arrays import F4, F8, I8, Bools
from noonward.errors import ScenarioError
from noonward.learn.core.experience import Dimensions, Moment, Transition
from noonward.learn.core.masking import with_hold


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


class Replay:
    """Ring of decision steps; what all agents see is stored once.

    A transition goes from a decision step to the next one, for every agent, asked or not (MASAC, Algorithm 1): its
    reward and costs are the step's, its discount is ``gamma`` (or ``gamma^(elapsed / slot)``). No value follows where
    the run ended; where the episode is cut, one does.

    Args:
        dimensions: Sizes.
        capacity: Steps kept, C.
        gamma: Discount.
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
        per_slot: bool = False,
    ) -> None:
        if capacity < 1:
            raise ScenarioError(f"replay of {capacity} steps; it must hold at least 1")
        d = self.dimensions = dimensions
        self.capacity, self.gamma, self.per_slot = capacity, gamma, per_slot
        self.global_CG = np.zeros((capacity, d.global_size), np.float32)
        self.own_CNO = np.zeros((capacity, d.agents, d.own_size), np.float32)
        self.mask_CNA = np.zeros((capacity, d.agents, d.choices), np.bool_)
        self.asked_CN = np.zeros((capacity, d.agents), np.bool_)
        self.choice_CN = np.zeros((capacity, d.agents), np.int16)
        self.gain_CK = np.zeros((capacity, 1 + d.columns))
        self.discount_C = np.zeros(capacity)
        self.next_C = np.zeros(capacity, np.int64)
        self.valid_C = np.zeros(capacity, np.bool_)
        self.count = 0
        """Steps stored so far, overwritten ones included; step k lies in slot k % C."""
        self.row_B = np.full(0, -1, np.int64)
        """The last step of each run, by its number; -1 before its first."""

    def __len__(self) -> int:
        """Steps that are in the ring."""
        return min(self.count, self.capacity)

    def observe(self, transition: Transition) -> None:
        """Takes in a decision step of B runs."""
        ended_B, cut_B = transition.ended_B, transition.cut_B & ~transition.ended_B
        if len(self.row_B) != len(ended_B):
            self.row_B = np.full(len(ended_B), -1, np.int64)
        fresh = np.flatnonzero(self.row_B < 0)
        if len(fresh):
            self.row_B[fresh] = self._append(fresh, transition.before)
        number_B = self.row_B.copy()
        self.choice_CN[number_B % self.capacity] = transition.choice_BN
        following = np.flatnonzero(~ended_B)
        self.row_B[ended_B] = -1
        self.row_B[following] = self._append(following, transition.after)
        self._close(number_B, transition, ended_B)
        self.row_B[cut_B] = -1

    def _append(self, rows: I8, moment: Moment) -> I8:
        """Stores what some runs see; returns the numbers of the steps."""
        number = self.count + np.arange(len(rows))
        self.count += len(rows)
        slot = number % self.capacity
        self.valid_C[slot] = False
        self.global_CG[slot] = moment.global_BG[rows]
        self.own_CNO[slot] = moment.own_BNO[rows]
        asked = moment.asked_BN[rows]
        self.mask_CNA[slot] = with_hold(moment.mask_BNA[rows], asked)
        self.asked_CN[slot] = asked
        return number

    def _close(self, number_B: I8, transition: Transition, ended_B: Bools) -> None:
        """Stores what became of some steps, of those that the ring still holds."""
        gain_BK = np.column_stack([transition.reward_B, transition.cost_BK])
        discount_B = np.full(len(ended_B), self.gamma)
        if self.per_slot:
            discount_B = self.gamma ** (transition.elapsed_s_B / self.dimensions.slot_s)
        alive = np.flatnonzero(number_B >= self.count - self.capacity)
        slot = number_B[alive] % self.capacity
        self.gain_CK[slot] = gain_BK[alive]
        self.discount_C[slot] = np.where(ended_B, 0.0, discount_B)[alive]
        self.next_C[slot] = np.where(ended_B[alive], slot, self.row_B[alive] % self.capacity)
        self.valid_C[slot] = True

    def sample(self, rng: np.random.Generator, batch: int) -> Batch:
        """Draws a batch of transitions for every agent, each on its own.

        Args:
            rng: Random numbers.
            batch: Transitions per agent.

        Raises:
            ScenarioError: The replay holds no transition yet.
        """
        share = self.valid_C[: len(self)].mean() if len(self) else 0.0
        if share == 0.0:
            raise ScenarioError("the replay holds no transition yet; collect more steps before the first update")
        return self._gather(np.stack([self._draw(batch, share, rng) for _ in range(self.dimensions.agents)]))

    def _draw(self, batch: int, share: float, rng: np.random.Generator) -> I8:
        """Draws slots of transitions, each as likely as any other; ``share`` of the slots have one."""
        slots: list[I8] = []
        missing = batch
        while missing > 0:
            drawn = rng.integers(len(self), size=int(1.2 * missing / share) + 8)
            slots.append(drawn[self.valid_C[drawn]][:missing])
            missing -= len(slots[-1])
        return np.concatenate(slots)

    def _gather(self, slot_NB: I8) -> Batch:
        """Returns the transitions in some slots."""
        agent_N1 = np.arange(len(slot_NB))[:, None]
        next_NB, gain_NBK = self.next_C[slot_NB], self.gain_CK[slot_NB]
        return Batch(
            seen_NBI=self._seen(slot_NB),
            mask_NBA=self.mask_CNA[slot_NB, agent_N1],
            asked_NB=self.asked_CN[slot_NB, agent_N1],
            choice_NB=self.choice_CN[slot_NB, agent_N1].astype(np.int64),
            reward_NB=gain_NBK[..., 0],
            cost_NBK=gain_NBK[..., 1:],
            discount_NB=self.discount_C[slot_NB],
            next_seen_NBI=self._seen(next_NB),
            next_mask_NBA=self.mask_CNA[next_NB, agent_N1],
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
        "gain_CK",
        "discount_C",
        "next_C",
        "valid_C",
    )

    def state(self) -> dict[str, Any]:
        """Returns the filled part of the ring and where the runs are."""
        filled = {name: getattr(self, name)[: len(self)] for name in self.RING}
        return {**filled, "row_B": self.row_B, "count": self.count}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""
        self.count = int(state["count"])
        for name in self.RING:
            getattr(self, name)[: len(self)] = state[name]
        self.row_B = np.array(state["row_B"])
