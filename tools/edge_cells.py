"""Quality and response of edge policies in cells that nobody chose: drawn from a seed, the same episodes for all.

    python tools/edge_cells.py --seed 31 --cells 31 --policies queue-lookahead,priced-lookahead,eat-d

A cell has other servers, arrival rate, gang times, sizes and numbers of tasks than the paper's fifteen. Prints a row
per cell and policy, then how many cells reach the goal of quality, and the paired differences in response.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from noonward.arrays import F8
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.scheduler import CompiledEdgeScheduler
from noonward.engine.edge.episodes import LAUNCHED, QUALITY, RESPONSE_S, sum_episodes
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.policies import make_scheduler

USUAL = "queue-lookahead,priced-lookahead,lookahead,eat,eat-a,eat-d,eat-da,ppo"


def draw_cell(rng: np.random.Generator) -> list[str]:
    """Returns a cell as changes of the packaged scenario with the simulator's values."""
    servers = int(rng.integers(2, 13))
    sizes = [size for size in (1, 2, 4, 8) if size <= servers]
    sizes = sizes[: int(rng.integers(1, len(sizes) + 1))]
    load_s, step_s = float(rng.uniform(8, 90)), float(rng.uniform(0.15, 0.8))
    mean = sum(sizes) / len(sizes)
    busy_s = float(np.mean([0.6 * load_s + 24 * step_s * size**-0.8 for size in sizes])) * mean
    rate = float(rng.uniform(0.3, 1.3)) * servers / busy_s
    first = int(rng.integers(0, 16))
    changes = [f"servers.count={servers}", f"tasks.sizes={sizes}", f"tasks.rate_per_s={rate:.4f}"]
    changes += [f"tasks.first={first}", f"tasks.count={first + int(rng.integers(16, 60))}"]
    for size in (1, 2, 4, 8):
        changes.append(f"gang_times.{size}.load_s={load_s:.1f}")
        changes.append(f"gang_times.{size}.step_s={step_s * size**-0.8:.4f}")
    return changes


def mean_se(value_E: F8) -> tuple[float, float]:
    """Returns mean and half the 95 % interval of values by episode."""
    return float(value_E.mean()), 1.96 * float(value_E.std(ddof=1)) / len(value_E) ** 0.5


def main() -> None:
    """Draws the cells, runs the policies, prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--cells", type=int, default=31)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--policies", default=USUAL)
    parser.add_argument("--baseline", default="lookahead")
    asked = parser.parse_args()
    names = asked.policies.split(",")
    rng = np.random.default_rng(asked.seed)
    more: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    reached: dict[str, list[float]] = {name: [] for name in names}
    for cell in range(asked.cells):
        changes = draw_cell(rng)
        setting = load_scenario("edge-inference-reference", changes)
        assert isinstance(setting, EdgeScenario)
        print(f"cell {cell}: {' '.join(changes[:5])} load {changes[5].split('=')[1]} step {changes[6].split('=')[1]}")
        response: dict[str, F8] = {}
        for name in names:
            begin = time.process_time()
            scheduler = make_scheduler(name, "edge")
            assert isinstance(scheduler, CompiledEdgeScheduler)
            sum_EX = sum_episodes(setting, scheduler, asked.episodes, seed=asked.seed + cell)
            response[name] = sum_EX[:, RESPONSE_S] / sum_EX[:, LAUNCHED]
            reached[name].append(float(sum_EX[:, QUALITY].sum() / sum_EX[:, LAUNCHED].sum()))
            used = time.process_time() - begin
            mean_s, held = response[name].mean(), reached[name][-1]
            print(f"  {name:18} {mean_s:7.2f} s, quality {held:.4f} ({used:.1f} CPU s)", flush=True)
        for name in names:
            more[name].append(mean_se(response[name] - response[asked.baseline]))
    for name in names:
        mean = np.array([each for each, _ in more[name]])
        half = np.array([each for _, each in more[name]])
        got = np.array(reached[name])
        sooner, later = np.sum(mean < -half), np.sum(mean > half)
        print(f"{name:18} quality {got.min():.4f} to {got.max():.4f}, mean {got.mean():.4f}", end="")
        print(f", {np.sum(got >= 0.26)} of {len(got)} cells at .26 or more", end="")
        print(f"; {mean.mean():+.2f} s against {asked.baseline}, sooner / later in {sooner} / {later}")


if __name__ == "__main__":
    main()
