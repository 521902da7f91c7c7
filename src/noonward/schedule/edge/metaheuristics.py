"""Genetic algorithm and Harmony Search over open-loop sequences, as EAT compares them (Sec. VI.A.2 and VI.A.3).

Both search, before a run, for the sequence of the highest reward over sampled episodes of the scenario's law, which no
run sees. They are written here because kept libraries do not serve: mealpy 3.0 requires numpy below 2, and pymoo 0.6
has no Harmony Search and finds no better sequences in twice the time (docs/edge-inference.md has the figures).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final

import numpy as np

from noonward.arrays import F8
from noonward.decision.edge.brief import EdgeBrief
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.decision.edge.view import EdgeMemory
from noonward.errors import ScenarioError
from noonward.model.edge.scenario import EdgeScenario, TraceTasks
from noonward.schedule.edge.rehearsal import SEED, Sample, sample_tasks
from noonward.schedule.edge.sequences import LENGTH, blank_servers, numbers_of, rewards_of, sequence_rule

EPISODES: Final = 4
"""Sampled episodes that a sequence is rated on; the authors' public code rates it on a single one."""
_FOUND: dict[tuple[str, str], F8] = {}
"""Best sequences found so far in this process, by method and scenario."""

Rate = Callable[[F8], F8]
"""(sequences) -> sums of rewards."""


def rater(setting: EdgeScenario) -> Rate:
    """Returns what rates sequences on sampled episodes of a scenario.

    Raises:
        ScenarioError: The scenario's tasks come from a file: there is no law to sample.
    """
    if isinstance(setting.tasks, TraceTasks):
        raise ScenarioError(
            f"scenario {setting.name!r} takes its tasks from a file, which has no law to sample episodes from; "
            "'genetic' and 'harmony' need one: leave them out"
        )
    return rater_on(setting, sample_tasks(setting, episodes=EPISODES))


def rater_on(setting: EdgeScenario, sample: Sample) -> Rate:
    """Returns what rates sequences on given episodes."""
    task_EK, count_E = sample
    servers, waiting_K = blank_servers(setting.servers.count), np.zeros(task_EK.shape[1], [("task", "i8")])
    last_s = float(task_EK["stamp_s"].max()) + setting.limit_s
    number_P, most_t = numbers_of(setting), int(last_s / setting.tick_s)

    def rate(sequence_BX3: F8) -> F8:
        sum_B = np.zeros(len(sequence_BX3))
        rewards_of(sequence_BX3, task_EK, count_E, servers, waiting_K, number_P, most_t, sum_B)
        return sum_B

    return rate


def genetic_search(
    rate: Rate,
    rng: np.random.Generator,
    *,
    population: int = 64,
    generations: int = 32,
    parents: int = 10,
    mutation: float = 0.1,
    elites: int = 1,
) -> F8:
    """Returns the best sequence that a genetic algorithm finds.

    Each generation keeps its elite; every other child takes each gene from one of two parents, drawn from the best ten
    (crossover probability 1), and replaces each with a chance of 0.1 by a random one.

    Args:
        rate: Rates sequences.
        rng: Random numbers.
        population: Sequences of a generation.
        generations: Generations.
        parents: Best sequences that children descend from.
        mutation: Chance that a gene is replaced.
        elites: Best sequences that are kept.
    """
    sequence_BX3 = rng.random((population, LENGTH, 3))
    sum_B = rate(sequence_BX3)
    for _ in range(generations):
        order_B = np.argsort(-sum_B, kind="stable")
        best_BX3 = sequence_BX3[order_B[:parents]]
        children = population - elites
        father, mother = (rng.integers(parents, size=children) for _ in range(2))
        of_father = rng.random((children, LENGTH, 3)) < 0.5
        child_BX3 = np.where(of_father, best_BX3[father], best_BX3[mother])
        replaced = rng.random(child_BX3.shape) < mutation
        child_BX3 = np.where(replaced, rng.random(child_BX3.shape), child_BX3)
        sequence_BX3 = np.concatenate([sequence_BX3[order_B[:elites]], child_BX3])
        sum_B = np.concatenate([sum_B[order_B[:elites]], rate(child_BX3)])
    return np.asarray(sequence_BX3[int(sum_B.argmax())])


def harmony_search(
    rate: Rate,
    rng: np.random.Generator,
    *,
    memory: int = 64,
    improvisations: int = 64,
    considering: float = 0.8,
    adjusting: float = 0.2,
    bandwidth: float = 0.5,
) -> F8:
    """Returns the best sequence that Harmony Search finds.

    An improvisation takes each gene from the memory with a chance of 0.8 (and then moves it by up to the bandwidth with
    a chance of 0.2), else draws it; it replaces the worst of the memory if it is better.

    Args:
        rate: Rates sequences.
        rng: Random numbers.
        memory: Sequences in the memory.
        improvisations: Improvisations.
        considering: Chance that a gene comes from the memory.
        adjusting: Chance that such a gene is moved.
        bandwidth: Largest move of a gene, whose range is 0 to 1; the paper's 1 is for a range of -1 to 1.
    """
    sequence_BX3 = rng.random((memory, LENGTH, 3))
    sum_B = rate(sequence_BX3)
    for _ in range(improvisations):
        taken = rng.integers(memory, size=(LENGTH, 3))
        gene_X3 = np.take_along_axis(sequence_BX3, taken[None], axis=0)[0]
        moved_X3 = np.clip(gene_X3 + bandwidth * rng.uniform(-1, 1, gene_X3.shape), 0.0, np.nextafter(1.0, 0.0))
        gene_X3 = np.where(rng.random(gene_X3.shape) < adjusting, moved_X3, gene_X3)
        new_X3 = np.where(rng.random(gene_X3.shape) < considering, gene_X3, rng.random(gene_X3.shape))
        reward, worst = float(rate(new_X3[None])[0]), int(sum_B.argmin())
        if reward > sum_B[worst]:
            sequence_BX3[worst], sum_B[worst] = new_X3, reward
    return np.asarray(sequence_BX3[int(sum_B.argmax())])


class OpenLoop(CompiledEdgeScheduler):
    """Plays a sequence that was found before the run."""

    rule = staticmethod(sequence_rule)

    @abstractmethod
    def search(self, rate: Rate, rng: np.random.Generator) -> F8:
        """Returns a sequence."""

    def make_memory(self, brief: EdgeBrief, rng: np.random.Generator) -> EdgeMemory:
        """Returns a memory of the sequence; it is searched for once per scenario and process."""
        key = (type(self).__name__, brief.setting.digest)
        if key not in _FOUND:
            _FOUND[key] = self.search(rater(brief.setting), np.random.default_rng(SEED))
        return EdgeMemory.make(numbers=numbers_of(brief.setting), scratch=_FOUND[key])


class Genetic(OpenLoop):
    """The published metaheuristic: 2,048 actions found by a genetic algorithm, played without looking."""

    def search(self, rate: Rate, rng: np.random.Generator) -> F8:
        """Returns what the genetic algorithm finds."""
        return genetic_search(rate, rng)


class Harmony(OpenLoop):
    """The published metaheuristic: 2,048 actions found by Harmony Search, played without looking."""

    def search(self, rate: Rate, rng: np.random.Generator) -> F8:
        """Returns what Harmony Search finds."""
        return harmony_search(rate, rng)
