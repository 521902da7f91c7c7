"""``noonward train``: trains a learned policy, epoch by epoch, and resumes where it stopped."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.options import (
    Interrupted,
    JobFile,
    Json,
    Out,
    RayAddress,
    SignalFiles,
    Workers,
    opened,
    print_work,
)

if TYPE_CHECKING:
    from noonward.learn.algorithms.algorithm import PolicyArrays
    from noonward.learn.train.run_config import RunConfig


def train(
    name: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="A packaged scenario or a .yaml file; none with --resume.")
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="masac (the default), masac-credit, madqn, mappo, chsac-af or chsac-af-published; in edge scenarios "
            "eat (the default), eat-a, eat-d, eat-da, eat-published or ppo."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs, 100 by default; with --resume, the new total.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of networks, exploration and training environments; 0 by default.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--hyper", metavar="NAME=VALUE", help="A setting of the algorithm or the run: span=own, steps=2000."
        ),
    ] = None,
    given_settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a value of the scenario. A setting of the run is taken too."
        ),
    ] = None,
    scenario_settings: Annotated[
        list[str] | None,
        typer.Option("--scenario-set", metavar="KEY=VALUE", help="As --set, for the scenario only.", hidden=True),
    ] = None,
    signals: SignalFiles = None,
    jobs: JobFile = None,
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A further scenario whose environments are taken in turn.")
    ] = None,
    out: Out = Path("runs"),
    resume: Annotated[Path | None, typer.Option(help="Folder of a run to resume.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the best policy to this .npz file.")] = None,
    half: Annotated[bool, typer.Option("--half", help="Round the exported weights to float16: half the size.")] = False,
    workers: Workers = None,
    ray: RayAddress = None,
    json: Json = False,
) -> None:
    """Train a learned policy.

    The same command, or --resume FOLDER, continues where it stopped.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded
    from noonward.errors import ScenarioError

    if export is not None:
        _check_export(export, out)
    elif half:
        raise ScenarioError("--half rounds what --export writes; give --export FILE.npz too, or leave it out")
    if resume is not None:
        given = {
            "SCENARIO": name,
            "--algorithm": algorithm,
            "--seed": seed,
            "--hyper": settings,
            "--set": given_settings,
            "--scenario-set": scenario_settings,
            "--signals": signals,
            "--jobs": jobs,
            "--also": also,
        }
        wrong = [option for option, value in given.items() if value is not None]
        if wrong:
            raise ScenarioError(
                f"--resume takes scenario and settings from the folder; leave out {', '.join(wrong)}; only "
                "--epochs may change"
            )
        config, folder = _kept_run(resume, epochs), resume
    else:
        if name is None:
            raise ScenarioError("name a scenario to train in, or give --resume FOLDER")
        of_run, of_scenario = _told_apart(name, algorithm, given_settings or ())
        config = _new_run(
            name,
            algorithm,
            epochs,
            seed,
            [*(settings or ()), *of_run],
            [*(scenario_settings or ()), *of_scenario],
            signals,
            jobs,
            also,
        )
        scenario = Path(name).stem
        folder = out / f"{scenario}-{config.digest()}-seed{config.seed}" / config.algorithm
    _train(config, folder, export, half, json, workers, ray)


def _check_export(path: Path, out: Path) -> None:
    """Raises ScenarioError or FileError if a policy could not be written or read back at a path."""
    from noonward.errors import ScenarioError
    from noonward.files import require_folder

    if path.suffix != ".npz":
        raise ScenarioError(f"--export {path} does not end in .npz, by which a policy's file is known; name it so")
    if path.is_dir():
        raise ScenarioError(f"--export {path} is a folder; name a file")
    require_folder(path, "--export", out)


def _told_apart(name: str, algorithm: str | None, given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns which values of ``--set`` are settings of the run, and which change the scenario.

    A name of the run or the algorithm is the run's, as in earlier versions; other keys of scenarios are the scenario's.
    """
    from noonward.data.scenarios.load import load_scenario
    from noonward.learn.tasks.kinds import DEFAULTS, task_kind
    from noonward.learn.train.run_config import setting_names

    if not given:
        return [], []
    scenario = load_scenario(name)
    own = setting_names(algorithm or DEFAULTS[scenario.kind], task_kind(scenario.kind))
    keys = {text: text.split("=", 1)[0] for text in given}
    fields = type(scenario).model_fields
    changes = [text for text in given if keys[text] not in own and keys[text].split(".")[0] in fields]
    return [text for text in given if text not in changes], changes


def _new_run(
    name: str,
    algorithm: str | None,
    epochs: int | None,
    seed: int | None,
    settings: list[str],
    scenario_settings: list[str],
    signals: list[Path] | None,
    jobs: Path | None,
    also: list[str] | None,
) -> RunConfig:
    """Returns the run that the options describe."""
    from noonward.data.scenarios.load import load_scenario
    from noonward.learn.tasks.kinds import DEFAULTS, task_kind
    from noonward.learn.tasks.source import Source
    from noonward.learn.train.run_config import with_settings

    changed = tuple(scenario_settings)
    files = tuple(str(path) for path in signals or ())
    first = Source(scenario=name, settings=changed, signals=files, jobs=None if jobs is None else str(jobs))
    sources = (first, *(Source(scenario=each, settings=changed) for each in also or ()))
    resolved = tuple(source.resolved() for source in sources)
    given = {name: value for name, value in (("epochs", epochs), ("seed", seed)) if value is not None}
    kind = load_scenario(name, changed).kind
    return with_settings(algorithm or DEFAULTS[kind], task_kind(kind)(sources=resolved), settings, **given)


def _kept_run(folder: Path, epochs: int | None) -> RunConfig:
    """Returns the run of a folder, with another number of epochs if one is given."""
    import dataclasses

    from noonward.learn.train.trainer import read_config

    config = read_config(folder)
    return config if epochs is None else dataclasses.replace(config, epochs=epochs)


def _train(
    config: RunConfig, folder: Path, export: Path | None, half: bool, json: bool, workers: int | None, ray: str | None
) -> None:
    """Trains, tells how it goes, and says where the results are."""
    import sys
    from json import dumps

    from noonward.cli.training_table import TrainingTable
    from noonward.errors import ScenarioError
    from noonward.learn.train.run_trainer import plays_runs, trainer_for
    from noonward.runtime.executor import map_runs

    if not plays_runs(config) and (ray is not None or workers not in (None, 1)):
        raise ScenarioError(
            f"{config.algorithm} learns from environments that are stepped side by side in one process, so further "
            "workers have nothing to do; leave out --workers and --ray (masac-credit takes them)"
        )
    with opened(workers, ray) as executor, TrainingTable(config.epochs) as table:
        trainer = trainer_for(config, config.open(), folder, table, lambda specs, step: map_runs(specs, executor, step))
        if trainer.epoch >= config.epochs:
            print(f"nothing to train: {folder} has {trainer.epoch} epochs; give more by --epochs", file=sys.stderr)
        else:
            table.began(folder, trainer.epoch)
        try:
            trainer.run()
        except KeyboardInterrupt:
            kept = trainer.kept_epoch
            done = f"{kept} of {config.epochs} epochs are kept" if kept else "no epoch is kept yet"
            rest = "" if export is None else f" --export {export}" + (" --half" if half else "")
            print(
                f"interrupted; {done} in {folder}; resume with: noonward train --resume {folder}{rest}", file=sys.stderr
            )
            raise Interrupted from None
    if export is not None:
        from noonward.learn.train.export import export_policy

        export_policy(folder, export, half=half)
    curve = trainer.curves
    if json:
        print(
            dumps({"folder": str(folder), "epochs": trainer.epoch, "best_epoch": trainer.best_epoch, "curves": curve})
        )
        return
    limits = _constraints(trainer.best)
    print(f"best policy: epoch {trainer.best_epoch}, {_worth(config, trainer.best_reward, limited=bool(limits))}")
    for name, value in limits:
        print(f"  {name}: {value:.4g}")
    print(f"results: {folder} (curves.csv, checkpoint.npz, events; tensorboard --logdir {folder})")
    if export is not None:
        from noonward.data.scenarios.load import load_scenario

        task: Any = config.task
        source = task.sources[0]
        scenario = load_scenario(source.scenario, source.settings)
        words = ["compare", source.scenario, "--policies", f"{scenario.baseline},{export}"]
        for option, values in (("--set", source.settings), ("--signals", source.signals), ("--jobs", (source.jobs,))):
            words += [word for value in values if value is not None for word in (option, value)]
        print(f"policy:  {export}; noonward {shlex.join(words)}")
    print_work(executor)
    print(f"train on: noonward train --resume {folder} --epochs {2 * trainer.epoch}")


def _worth(config: RunConfig, reward: float, *, limited: bool) -> str:
    """Returns the best policy's worth in words."""
    from noonward.data.scenarios.load import load_scenario
    from noonward.engine.cluster.service_meter import ENERGY_ALONE

    task: Any = config.task
    if getattr(task, "kind", "cluster") == "edge":
        return f"validation reward {reward:,.3f} an episode"
    if task.reward == "energy":
        what = "J" if task.mix == ENERGY_ALONE else "J, weighed by price and carbon,"
        priced = ", excesses over limits priced in" if limited else ""
        if load_scenario(task.sources[0].scenario, task.sources[0].settings).latency_weight_w:
            priced = ", time in system counted in" + priced
        return f"{-reward:,.4f} {what} per unit above idle GPUs in validation{priced}"
    return f"validation reward {reward:,.2f} USD"


def _constraints(best: PolicyArrays | None) -> list[tuple[str, float]]:
    """Returns multipliers and relative excesses at the time of the best policy, by name."""
    return [] if best is None else list(best.meta.get("constraints", {}).items())
