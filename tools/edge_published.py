"""What the EAT paper's tables say against their own baselines, and what sequences do on the episode they were found on.

    python tools/edge_published.py

The first part needs the paper's tables alone. The second searches a sequence of Genetic and of Harmony on a single
episode, as the authors' public code does, and plays it on that episode and on the next one.
"""

from __future__ import annotations

import argparse

import numpy as np

from noonward.arrays import F8
from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import EdgeMemory
from noonward.engine.edge.engine import run_edge_environment
from noonward.ledger.edge import settle_edge
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.edge.metaheuristics import genetic_search, harmony_search, rater_on
from noonward.schedule.edge.rehearsal import Sample
from noonward.schedule.edge.sequences import numbers_of, sequence_rule
from noonward.studies.edge_inference.published import CELLS, PAPER

BASELINES = ("PPO", "Genetic", "Harmony", "Random", "Greedy")
MIDDLE = ((4, 0.05), (8, 0.10), (12, 0.15))
SEARCHES = {"Genetic": genetic_search, "Harmony": harmony_search}


class Played(CompiledEdgeScheduler):
    """Plays a given sequence."""

    rule = staticmethod(sequence_rule)

    def __init__(self, sequence_X3: F8) -> None:
        self.sequence_X3 = sequence_X3

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory of the sequence."""
        return EdgeMemory.make(numbers=numbers_of(brief.setting), scratch=self.sequence_X3)


def published_gains() -> None:
    """Prints EAT's gain over each cell's best baseline, by the paper's own Table X."""
    response = PAPER["response_s"]
    wins, lines = 0, []
    for cell in CELLS:
        best = min(BASELINES, key=lambda name: response[name][cell])
        gain = 1 - response["EAT"][cell] / response[best][cell]
        wins += gain > 0
        lines.append(f"{cell[0]} servers, {cell[1]}/s: {gain:+.1%} against {best}")
    cell = (4, 0.03)
    gain = 1 - response["EAT"][cell] / response["Random"][cell]
    print(f"4 servers, 0.03/s, against Random: {gain:+.1%}")
    print("\n".join(lines))
    print(f"EAT responds sooner than the best baseline in {wins} of {len(CELLS)} cells")


def played(environment: EdgeEnvironment, sequence_X3: F8) -> float:
    """Returns the mean response of a sequence in an episode, s."""
    return settle_edge(run_edge_environment(environment, Played(sequence_X3))).response_s


def replayed(episodes: int) -> None:
    """Prints what sequences do on the episode that they were found on, and on the next one."""
    for servers, rate in MIDDLE:
        sizes = [1, 2, 4] if servers == 4 else [1, 2, 4, 8]
        changes = [f"servers.count={servers}", f"tasks.sizes={sizes}", f"tasks.rate_per_s={rate}"]
        setting = load_scenario("edge-inference-reference", changes)
        assert isinstance(setting, EdgeScenario)
        environments = [build_edge_environment(setting, n, 1) for n in range(episodes + 1)]
        for name, search in SEARCHES.items():
            own, other = [], []
            for n in range(episodes):
                record_K = environments[n].tasks.record_K
                rate_on = rater_on(setting, Sample(record_K[None].copy(), np.array([len(record_K)])))
                sequence_X3 = search(rate_on, np.random.default_rng(n))
                own.append(played(environments[n], sequence_X3))
                other.append(played(environments[n + 1], sequence_X3))
            half = 1.96 * np.std([own, other], axis=1, ddof=1) / episodes**0.5
            paper_s = PAPER["response_s"][name][servers, rate]
            print(
                f"{name}, {servers} servers, {rate}/s, {episodes} searches: {np.mean(own):.1f} +- {half[0]:.1f} s",
                end="",
            )
            print(
                f" on the same episode, {np.mean(other):.1f} +- {half[1]:.1f} s on another; paper {paper_s} s",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    asked = parser.parse_args()
    published_gains()
    replayed(asked.episodes)
