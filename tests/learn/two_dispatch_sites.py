"""A toy dispatcher with the attributes of the batch engine and its meter: two sites, two gangs, one right answer.

Each job sees a price per site; a choice takes ``ENERGY[site, gang] * price`` and ``LATENCY_S[site, gang]``; fast
choices cost more. Site 1 is full in a third of the questions. Nothing a choice does changes what follows, so the best
policy under a multiplier takes the least of energy plus multiplier times latency, and is known exactly.
"""

from typing import Any

import numpy as np

from noonward.learn.core.experience import ActionSpec, Dimensions, Moment, Transition

ENERGY = np.array([[1.0, 1.3], [1.05, 1.5]])
LATENCY_S = np.array([[400.0, 240.0], [300.0, 100.0]])
SITES, GANGS = 2, 2
CHOICES = SITES * GANGS


def dimensions(*limits: str) -> Dimensions:
    """Returns the sizes of the toy with some limits."""
    actions, counts = ActionSpec.of(site=SITES, gpus=GANGS), ("work", "decisions")
    return Dimensions(agents=1, actions=actions, global_size=3, own_size=0, costs=limits, counts=counts)


def questions(rng: np.random.Generator, rows: int) -> tuple[Any, Any]:
    """Returns prices [B, 2] and masks [B, A]."""
    mask_BA = np.ones((rows, CHOICES), bool)
    mask_BA[rng.random(rows) < 1 / 3, GANGS:] = False
    return rng.uniform(0.5, 1.5, (rows, SITES)), mask_BA


def energy(price_BS: Any) -> Any:
    """Returns the energy of every choice, [B, A]."""
    return (ENERGY * price_BS[:, :, None]).reshape(len(price_BS), CHOICES)


def moment(price_BS: Any, mask_BA: Any) -> Moment:
    """Returns what is seen."""
    rows = len(price_BS)
    seen = np.column_stack([price_BS, mask_BA[:, -1]]).astype(np.float32)
    return Moment(
        global_BG=seen,
        own_BNO=np.zeros((rows, 1, 0), np.float32),
        mask_BNA=mask_BA[:, None].astype(np.uint8),
        asked_BN=np.ones((rows, 1), bool),
    )


def best_of(limit_s: float | None) -> tuple[float, float, float]:
    """Returns mean energy, mean latency and multiplier (per relative excess) of the best policy within a limit."""
    price_BS, mask_BA = questions(np.random.default_rng(99), 200_000)

    def under(multiplier: float) -> tuple[float, float]:
        cost_BA = energy(price_BS) + multiplier * LATENCY_S.ravel() / (limit_s or 1.0)
        choice_B = np.where(mask_BA, cost_BA, np.inf).argmin(1)
        row_B = np.arange(len(choice_B))
        return float(energy(price_BS)[row_B, choice_B].mean()), float(LATENCY_S.ravel()[choice_B].mean())

    low, high = 0.0, 10.0
    if limit_s is None or under(0.0)[1] <= limit_s:
        return (*under(0.0), 0.0)
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if under(middle)[1] > limit_s else (low, middle)
    return (*under(high), high)


def play(algorithm: Any, rounds: int, *, limit_s: float | None = None, rows: int = 64, learn: bool = True) -> Any:
    """Plays rounds of questions; returns mean energy, latency and, per round, what ``update`` told."""
    rng = np.random.default_rng(5 if learn else 6)
    price_BS, mask_BA = questions(rng, rows)
    before, told, energies, latencies = moment(price_BS, mask_BA), [], [], []
    for _ in range(rounds):
        choice_B = algorithm.act(before, explore=learn)[:, 0]
        assert mask_BA[np.arange(rows), choice_B].all(), "an infeasible choice"
        energy_B = energy(price_BS)[np.arange(rows), choice_B]
        latency_B = LATENCY_S.ravel()[choice_B]
        energies.append(energy_B.mean())
        latencies.append(latency_B.mean())
        price_BS, mask_BA = questions(rng, rows)
        after = moment(price_BS, mask_BA)
        if learn:
            cost = [] if limit_s is None else [latency_B / limit_s - 1.0]
            none_B = np.zeros(rows, bool)
            cost_BK = np.column_stack([*cost, np.ones((rows, 2))])
            algorithm.observe(
                Transition(before, choice_B[:, None], -energy_B, np.ones(rows), cost_BK, none_B, none_B, after)
            )
            told.append(algorithm.update())
        before = after
    return float(np.mean(energies)), float(np.mean(latencies)), told
