"""Benchmarks of learning: joint steps of the environment and joint updates per CPU-second, shares of training."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.bench.engine import cpu_seconds
from noonward.data.scenarios.load import load_scenario
from noonward.decision.cluster.observation import Observation
from noonward.engine.cluster.batch import BatchEngine
from noonward.evaluate.metrics import Metric
from noonward.runtime.by_kind import build_environments

ROUNDS: Final = 5
UPDATES: Final = 8
"""Updates per turn; the least time of all turns counts."""
TWENTIETH: Final = (600, 50)
"""Steps and updates in a twentieth of the paper's epoch."""
CREDIT_SETTINGS: Final = (
    "epochs=16", "environments=6", "windows=32", "cooling=16", "rate=0.001", "validation_environments=24",
    "validate_every=4", "checkpoint_every=4",
)  # fmt: skip
"""Settings of the packaged ``masac-credit``, seed 0."""
ROWS = 10
STEPS = 3000


def bench_environment(progress: Callable[[str], None] | None = None) -> list[Metric]:
    """Times the batch engine on ten two-day ``fine-tuning`` environments with the paper's observation.

    The random feasible choices are drawn beforehand and replayed, so that the environment alone is timed, the call
    from Python included. A joint step is one question to all sites of one environment.

    Args:
        progress: Called once per figure.
    """
    environments = list(build_environments(load_scenario("fine-tuning"), ROWS))
    engine = BatchEngine(environments, Observation(kind="paper"), seeds=range(ROWS))
    start, choices = engine.state(), _random_choices(engine)
    at_start = cpu_seconds(lambda: engine.load_state(start))

    def replay() -> None:
        engine.load_state(start)
        for choice_BN in choices:
            engine.step(choice_BN)

    seconds = cpu_seconds(replay) - at_start
    name = "environment/joint_steps_per_cpu_s"
    if progress is not None:
        progress(name)
    return [Metric.of(name, ROWS * len(choices) / seconds, "joint steps/CPU s")]


def _random_choices(engine: BatchEngine) -> list[NDArray[np.int64]]:
    """Returns the choices of a run under random feasible choices, as long as every row runs."""
    rng = np.random.default_rng(0)
    out: list[NDArray[np.int64]] = []
    while len(out) < STEPS:
        choice_BN = (engine.mask_BNA * rng.random(engine.mask_BNA.shape)).argmax(2)
        engine.step(choice_BN)
        if engine.done_B.any():
            return out
        out.append(choice_BN)
    return out


def bench_learn(progress: Callable[[str], None] | None = None) -> list[Metric]:
    """Times the environment and MASAC's joint update in the paper's configuration, on one thread.

    A joint update moves the nets of all five agents once: batches of 256, two hidden layers of 256, the paper's
    observation. The plain loop is Algorithm 1 as printed, agent by agent, with torch's default Adam. Its critics step
    before its actors learn from them, which takes one more evaluation of the critics than ``Masac`` needs: the ratio
    includes what that saves. All are timed in turns, so that other load on the machine
    affects them alike. The shares are those of the paper's epoch: a twentieth of its collection and updates, and a
    whole validation, are timed. Where torch sees a GPU, joint updates are timed there too, in wall time beside the
    CPU's.

    Args:
        progress: Called once per figure.

    Raises:
        MissingExtraError: torch is not installed.
    """
    from noonward.learn.algorithms.registry import algorithm_named

    algorithm_named("masac")
    metrics: list[Metric] = []
    for part in (bench_environment, _updates, _on_gpu, _shares, _chsac, _credit):
        for metric in part():
            metrics.append(metric)
            if progress is not None:
                progress(metric.name)
    return metrics


def _updates() -> list[Metric]:
    """Joint updates per CPU-second, and how many times a plain loop's."""
    from noonward.bench.plain_masac import PlainMasac

    with tempfile.TemporaryDirectory() as folder:
        settings = ("precision=float32", "precision=bf16")
        trainers = [_trainer(Path(folder) / setting, setting) for setting in settings]
    algorithms: list[Any] = [_fed(trainer) for trainer in trainers]
    plain = PlainMasac(algorithms[0])
    seconds = np.full(len(algorithms) + 1, np.inf)
    for _ in range(ROUNDS):
        for place, each in enumerate((*algorithms, plain)):
            seconds[place] = min(seconds[place], cpu_seconds(each.update, least_s=0.0, least_repeats=UPDATES))
    return [
        Metric.of("masac/joint_updates_per_cpu_s", 1 / seconds[0], "joint updates/CPU s"),
        Metric.of("masac/ratio_to_plain_loop", seconds[-1] / seconds[0], "ratio"),
        Metric.of("masac/bf16_ratio_to_plain_loop", seconds[-1] / seconds[1], "ratio"),
    ]


def _on_gpu() -> list[Metric]:
    """The figures of ``updates_on`` for a GPU; none where torch sees none."""
    from noonward.learn.core.nets import gpu_seen

    return updates_on("cuda") if gpu_seen() else []


def updates_on(device: str) -> list[Metric]:
    """Returns joint updates per second of wall time on a device, and how many times those of a CPU core.

    An update ends with its figures on the CPU, so nothing is left running on the device.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = enumerate(("cpu", device))
        algorithms = [_fed(_trainer(Path(folder) / str(n), f"device={place}")) for n, place in places]
    seconds = np.full(2, np.inf)
    for _ in range(ROUNDS * UPDATES):
        for n, algorithm in enumerate(algorithms):
            began = time.perf_counter()
            algorithm.update()
            seconds[n] = min(seconds[n], time.perf_counter() - began)
    return [
        Metric.of("masac/gpu_joint_updates_per_s", 1 / seconds[1], "joint updates/s"),
        Metric.of("masac/gpu_ratio_to_cpu", seconds[0] / seconds[1], "ratio"),
    ]


def _fed(trainer: Any) -> Any:
    """Returns a trainer's algorithm with enough decision steps in its replay for batches."""
    for _ in range(TWENTIETH[0]):
        moment = trainer.rows.moment
        trainer.algorithm.observe(trainer.rows.step(trainer.algorithm.act(moment, explore=True)))
    return trainer.algorithm


def _shares() -> list[Metric]:
    """Shares of the wall time of training, at the paper's ratio of steps to updates."""
    reports: list[Any] = []

    class Listener:
        def phase(self, name: str, done: int, total: int) -> None:
            """Does nothing."""

        def epoch(self, report: Any) -> None:
            """Keeps what an epoch took."""
            reports.append(report.seconds)

    with tempfile.TemporaryDirectory() as folder:
        _trainer(Path(folder), reporter=Listener()).run()
    spent = {name: seconds * (1 if name == "validate" else 20) for name, seconds in reports[-1].items()}
    return [
        Metric.of(f"training/share_of_{name}", seconds / sum(spent.values()), "fraction")
        for name, seconds in spent.items()
    ]


def _chsac() -> list[Metric]:
    """CHSAC-AF in ``dvfs-training``: decisions and updates per CPU-second, and how many times a plain loop's.

    Nets and batch as the shipped policy was trained with, 64 environments; a decision includes the policy that acts,
    the meter and the replay.
    """
    from noonward.bench.plain_chsac import PlainChsac
    from noonward.learn.tasks.cluster import ClusterTask
    from noonward.learn.tasks.source import Source
    from noonward.learn.train.run_config import with_settings
    from noonward.learn.train.trainer import Trainer

    source = Source(scenario="dvfs-training", settings=("window_h=2", "constraints.mean_latency_s=3600"))
    given = ["reward=energy", "environments=64", "hidden=[128,128,128]", "quantiles=16"]
    config = with_settings("chsac-af", ClusterTask(sources=(source,)), given, epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, config.open(), Path(folder))
    rows, algorithm = trainer.rows, trainer.algorithm

    def decide() -> None:
        algorithm.observe(rows.step(algorithm.act(rows.moment, explore=True)))

    for _ in range(50):
        decide()
    plain: Any = PlainChsac(algorithm)
    seconds = np.full(3, np.inf)
    for _ in range(ROUNDS):
        for place, work in enumerate((algorithm.update, plain.update, decide)):
            seconds[place] = min(seconds[place], cpu_seconds(work, least_s=0.0, least_repeats=UPDATES))
    return [
        Metric.of("chsac-af/decisions_per_cpu_s", len(rows.number_B) / seconds[2], "decisions/CPU s"),
        Metric.of("chsac-af/updates_per_cpu_s", 1 / seconds[0], "updates/CPU s"),
        Metric.of("chsac-af/ratio_to_plain_loop", seconds[1] / seconds[0], "ratio"),
    ]


def _credit() -> list[Metric]:
    """MASAC-credit in ``fine-tuning``: CPU time of a whole training on generated windows, and questions answered.

    A question is one that leaves a choice: it is looked at, answered and entered into the books. The run around it, its
    hourly prices included, counts too.
    """
    from noonward.engine.run import run
    from noonward.learn.tasks.cluster import ClusterTask
    from noonward.learn.tasks.source import Source
    from noonward.learn.train.run_config import with_settings
    from noonward.learn.train.run_trainer import trainer_for
    from noonward.schedule.cluster.choices.policy import ChoicePolicy

    task = ClusterTask(sources=(Source(scenario="fine-tuning"),))
    config = with_settings("masac-credit", task, CREDIT_SETTINGS)
    environments = list(build_environments(load_scenario("fine-tuning"), 2))
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_for(config, config.open(), Path(folder))
        policy: ChoicePolicy = trainer.algorithm.scheduler(explore=False)
        run(environments[0], policy)  # compiles
        began = time.process_time()
        trainer.run()
        trained_s = time.process_time() - began
    policy = trainer.algorithm.scheduler(explore=False)

    def play() -> int:
        asked = 0
        for environment in environments:
            run(environment, policy)
            asked += policy.noted[1]
        return asked

    asked = play()
    return [
        Metric.of("masac-credit/cpu_s_to_train", trained_s, "CPU s"),
        Metric.of("masac-credit/questions_per_cpu_s", asked / cpu_seconds(play), "questions/CPU s"),
    ]


def _trainer(folder: Path, *settings: str, reporter: Any = None) -> Any:
    """Returns a trainer of MASAC in ``fine-tuning`` for a short epoch."""
    from noonward.learn.tasks.cluster import ClusterTask
    from noonward.learn.tasks.source import Source
    from noonward.learn.train.run_config import with_settings
    from noonward.learn.train.trainer import Trainer

    config = with_settings(
        "masac",
        ClusterTask(sources=(Source(scenario="fine-tuning"),)),
        [f"steps={TWENTIETH[0]}", f"updates={TWENTIETH[1]}", "epochs=1", *settings],
    )
    return Trainer(config, config.open(), folder, reporter)
