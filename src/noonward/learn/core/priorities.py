"""Priorities of transitions: a sum tree per agent, for sampling in proportion to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noonward.arrays import F8, I8


class Priorities:
    """Sum trees over the slots of a replay, one per agent; node k has the children 2k and 2k + 1, leaves come last.

    Args:
        agents: Agents, N.
        capacity: Slots of the replay, C.
    """

    def __init__(self, agents: int, capacity: int) -> None:
        self.leaves = 1 << max(1, (capacity - 1).bit_length())
        self.tree_NX = np.zeros((agents, 2 * self.leaves))
        self.largest = 1.0
        """Priority of a transition that was never sampled: the largest so far."""

    def put(self, agent: I8, slot: I8, priority: F8 | float) -> None:
        """Sets the priorities of slots; a slot that is named twice must get the same priority twice.

        Args:
            agent: Agents, any shape.
            slot: Slots, same shape.
            priority: Priorities, at least 0; 0 takes a slot out.
        """
        node = slot + self.leaves
        self.tree_NX[agent, node] = priority
        while node.size and node.flat[0] > 1:  # all leaves lie equally deep
            node = node >> 1
            self.tree_NX[agent, node] = self.tree_NX[agent, 2 * node] + self.tree_NX[agent, 2 * node + 1]

    def draw(self, agent: int, count: int, rng: np.random.Generator) -> tuple[I8, F8]:
        """Draws slots of an agent in proportion to their priority, one from each of ``count`` equal shares of the sum.

        Returns:
            Slots [count] and their probabilities [count].
        """
        tree_X = self.tree_NX[agent]
        total = tree_X[1]
        left = (np.arange(count) + rng.random(count)) * (total / count)
        node: NDArray[np.int64] = np.ones(count, np.int64)
        while node[0] < self.leaves:
            node = 2 * node
            below = tree_X[node]
            # Rounding must never lead to the empty side.
            right = (left >= below) & (tree_X[node + 1] > 0)
            left = np.where(right, left - below, left)
            node += right
        return node - self.leaves, tree_X[node] / total

    def state(self) -> dict[str, Any]:
        """Returns the priorities."""
        return {"tree_NX": self.tree_NX, "largest": self.largest}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""
        self.tree_NX[:] = state["tree_NX"]
        self.largest = float(state["largest"])
