"""``noonward reproduce``: the papers' tables and figures, beside the papers' values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.option_groups import option_groups
from noonward.cli.options import (
    JobFile,
    Json,
    Nets,
    Out,
    Policies,
    Seed,
    SignalFiles,
    command_line,
    executor_of,
    print_notes,
    print_table,
    print_text_table,
    split_names,
)
from noonward.cli.progress import progress_bar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noonward.runtime.executor import Executor

app = typer.Typer(help="Reproduce the papers' tables and figures.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _root() -> None:
    pass


@app.command(name="dvfs-training", short_help="CHSAC-AF: Tables II and III, baselines and bound.")
@option_groups(executors=executor_of)
def dvfs_training(
    *,
    learned: Annotated[
        bool, typer.Option("--learned", help="Compare learned policies and baselines over unseen weeks instead.")
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Vary arrival rates, fleets and size distributions instead.")
    ] = False,
    ablations: Annotated[bool, typer.Option("--ablations", help="Run the ablation study instead.")] = False,
    seeds: Annotated[
        int, typer.Option("--environments", "-n", "--seeds", min=1, help="Number of unseen weeks (--learned).")
    ] = 10,
    training_seeds: Annotated[
        int | None, typer.Option(min=1, help="Training seeds of each (--ablations). [default: 3]")
    ] = None,
    nets: Nets = None,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    json: Json = False,
) -> None:
    """Tables II and III of CHSAC-AF for DP, UCB1 and JointNF, with further baselines and the energy bound."""
    from noonward.errors import ScenarioError
    from noonward.evaluate.metrics import to_json
    from noonward.studies.dvfs_training.reproduce import POLICIES, reproduce

    if learned + sweep + ablations > 1:
        raise ScenarioError("--learned, --sweep and --ablations are studies of their own; give one of them")
    if training_seeds is not None and not ablations:
        raise ScenarioError("--training-seeds goes with --ablations; give both, or leave it out")
    if ablations:
        _dvfs_ablations(training_seeds, out, executors, json)
        return
    if sweep:
        _dvfs_sweep(out, executors, json)
        return
    if learned:
        _dvfs_learned(seeds, out, executors, json)
        return

    with executors as executor, progress_bar(len(POLICIES) + 1, "dvfs-training", results=out) as step:
        study = reproduce(out, step, executor)
    if json:
        print(to_json(study.metrics, records=str(study.folder), report=str(study.report)))
        return
    for shown in study.tables:
        print_text_table(shown)
    for line in study.remarks:
        print(line)
    print(f"records: {study.folder}")
    print(f"report:  {study.report}")


def _dvfs_learned(weeks: int, out: Path, executors: AbstractContextManager[Executor], json: bool) -> None:
    """Prints learned policies and controls over unseen weeks."""
    from noonward.cli.compare import print_comparison
    from noonward.evaluate.metrics import to_json
    from noonward.studies.dvfs_training.controls import study_controls, study_policies

    count = weeks * (len(study_policies()) + 1)
    with executors as executor, progress_bar(count, "dvfs-training --learned", results=out) as step:
        study = study_controls(out, weeks, step, executor)
    if json:
        print(to_json(study.metrics, records=str(study.comparison.folder), report=str(study.report)))
        return
    print_comparison(study.comparison)
    for table in study.tables:
        print_text_table(table)
    print(f"records: {study.comparison.folder}")
    print(f"report:  {study.report}")


def _dvfs_ablations(
    training_seeds: int | None, out: Path, executors: AbstractContextManager[Executor], json: bool
) -> None:
    """Prints the ablation study."""
    from noonward.evaluate.metrics import to_json
    from noonward.studies.dvfs_training.ablations import CONTROLS, SEEDS, WINDOWS, ablations_table, study_ablations
    from noonward.studies.dvfs_training.short_training import ABLATIONS

    seeds = SEEDS if training_seeds is None else training_seeds
    count = len(CONTROLS) * WINDOWS + seeds * len(ABLATIONS)
    with executors as executor, progress_bar(count, "dvfs-training --ablations", results=out) as step:
        study = study_ablations(out, seeds=seeds, progress=step, executor=executor)
    if json:
        print(to_json(study.metrics(), training_seeds=seeds, windows=WINDOWS))
        return
    print_text_table(ablations_table(study))


def _dvfs_sweep(out: Path, executors: AbstractContextManager[Executor], json: bool) -> None:
    """Prints policies and the bound under other parameters."""
    from noonward.evaluate.metrics import to_json
    from noonward.studies.dvfs_training.sweep import POLICIES, SWEPT, points, sweep, sweep_table, write_sweep

    count = len(points()) * SWEPT * (len(POLICIES) + 1)
    with executors as executor, progress_bar(count, "dvfs-training --sweep", results=out) as step:
        study = sweep(out, environments=SWEPT, progress=step, executor=executor)
    command = command_line()
    report = write_sweep(study, out / "reproduce-dvfs-training" / "sweep.html", environments=SWEPT, command=command)
    if json:
        print(to_json(study.metrics(), environments=SWEPT, report=str(report)))
        return
    print_text_table(sweep_table(study))
    print(f"report:  {report}")


def _ablations(training_seeds: int, windows: int, json: bool) -> None:
    """Prints what trainings with a part taken away reach."""
    from rich.table import Table

    from noonward.evaluate.metrics import to_json
    from noonward.studies.fine_tuning.ablations import ABLATIONS, study_ablations

    with progress_bar(training_seeds * len(ABLATIONS), "fine-tuning --ablations", unit="trainings") as step:
        study = study_ablations(seeds=training_seeds, windows=windows, progress=step)
    if json:
        print(to_json(study.metrics(), windows=windows, training_seeds=training_seeds))
        return
    caption = f"{windows} generated windows of validation months, {training_seeds} training seed(s); 95% intervals"
    table = Table(title="share of possible improvement over local FCFS", caption=caption)
    for title in ("training", "what is changed", "share of possible improvement"):
        table.add_column(title, overflow="fold")
    for each in ABLATIONS:
        share = study.share[each.name]
        table.add_row(each.name, each.says, f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]")
    print_table(table)


def _map(environments: int, seed: int, out: Path, executors: AbstractContextManager[Executor], json: bool) -> None:
    """Prints what policies gain under each set of assumptions."""
    from noonward.evaluate.metrics import to_json
    from noonward.studies.fine_tuning.gain_map import cells, map_gains
    from noonward.studies.fine_tuning.gain_map_report import map_findings, map_table, write_gain_map

    with (
        executors as executor,
        progress_bar(len(cells()) * environments, "fine-tuning --map", results=out) as step,
    ):
        study = map_gains(environments=environments, seed=seed, out=out, progress=step, executor=executor)
    place = out / f"reproduce-fine-tuning-map-seed{seed}" / "report.html"
    command = command_line()
    report = write_gain_map(study, place, environments=environments, seed=seed, command=command)
    if json:
        more = {"environments": environments, "seed": seed, "findings": map_findings(study)}
        print(to_json(study.metrics(), **more, report=str(report)))
        return
    print_text_table(map_table(study))
    for line in map_findings(study):
        print(line)
    print(f"report:  {report}")


def _knowledge(
    environments: int,
    seed: int,
    policies: list[str] | None,
    out: Path,
    executors: AbstractContextManager[Executor],
    json: bool,
) -> None:
    """Prints what policies earn that are not told the jobs' run times."""
    from noonward.evaluate.metrics import to_json
    from noonward.studies.fine_tuning.knowledge import knowledge_table, runs_of, study_knowledge

    with (
        executors as executor,
        progress_bar(runs_of(environments, policies), "fine-tuning --knowledge", results=out) as step,
    ):
        study = study_knowledge(
            environments=environments, seed=seed, out=out, policies=policies, progress=step, executor=executor
        )
    if json:
        records = {way: str(comparison.folder) for way, comparison in study.by_way.items()}
        print(to_json(study.metrics(), environments=environments, seed=seed, records=records))
        return
    print_text_table(knowledge_table(study, environments))


def _published(
    signals: list[Path],
    environments: int | None,
    seed: int,
    out: Path,
    executors: AbstractContextManager[Executor],
    json: bool,
) -> None:
    """Prints what day-ahead prices as they are published earn planners in European zones."""
    from noonward.evaluate.metrics import to_json
    from noonward.studies.fine_tuning.published import ENVIRONMENTS, published_table, runs_of, study_published

    count = ENVIRONMENTS if environments is None else environments
    with (
        executors as executor,
        progress_bar(runs_of(count), "fine-tuning --published", results=out) as step,
    ):
        study = study_published(signals, environments=count, seed=seed, out=out, progress=step, executor=executor)
    if json:
        records = {part: str(comparison.folder) for part, comparison in study.by_part.items()}
        print(to_json(study.metrics(), environments=count, seed=seed, records=records))
        return
    print_text_table(published_table(study, count, real=bool(signals)))


@app.command(name="fine-tuning", short_help="MASAC: Sec. IV, Figs. 3 to 6, unseen months.")
@option_groups(executors=executor_of)
def fine_tuning(
    *,
    signals: SignalFiles = None,
    jobs: JobFile = None,
    environments: Annotated[
        int | None,
        typer.Option(
            "--environments", "-n", min=1, help="Number of environments. [default: 10; 40 of each part (--published)]"
        ),
    ] = None,
    seed: Seed = 0,
    policies: Policies = None,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="Run the ablation study of masac-credit instead.")
    ] = False,
    training_seeds: Annotated[int, typer.Option(min=1, help="Training seeds of each (--ablations).")] = 1,
    map_: Annotated[
        bool,
        typer.Option("--map", help="Vary demand, power, slack, GPUs per job and arrivals instead."),
    ] = False,
    knowledge: Annotated[
        bool,
        typer.Option("--knowledge", help="Tell policies limits, class means or learned run times instead."),
    ] = False,
    published: Annotated[
        bool,
        typer.Option("--published", help="Tell planners in Europe day-ahead prices as they are published instead."),
    ] = False,
    nets: Nets = None,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    json: Json = False,
) -> None:
    """Sec. IV and Figs. 3 to 6 of MASAC on months no policy was trained on; real data with --signals and --jobs."""
    from rich.table import Table

    from noonward.cli.compare import print_comparison
    from noonward.data.scenarios.load import load_scenario
    from noonward.errors import ScenarioError
    from noonward.evaluate.metrics import to_json

    if ablations + map_ + knowledge + published > 1:
        raise ScenarioError(
            "--ablations, --map, --knowledge and --published are studies of their own; give one of them"
        )
    if published and (jobs or policies):
        raise ScenarioError("--published compares fixed policies on generated jobs; leave out --jobs and --policies")
    if published:
        _published(signals or [], environments, seed, out, executors, json)
        return
    environments = 10 if environments is None else environments
    if knowledge and (signals or jobs):
        raise ScenarioError("--knowledge draws generated environments; leave out --signals and --jobs")
    if ablations and (signals or jobs or policies):
        raise ScenarioError("--ablations trains on generated data; leave out --signals, --jobs and --policies")
    if map_ and (signals or jobs or policies):
        raise ScenarioError("--map draws generated environments; leave out --signals, --jobs and --policies")
    if training_seeds != 1 and not ablations:
        raise ScenarioError("--training-seeds goes with --ablations; give both, or leave it out")
    if ablations:
        _ablations(training_seeds, environments, json)
        return
    if map_:
        _map(environments, seed, out, executors, json)
        return
    if knowledge:
        _knowledge(environments, seed, split_names(policies), out, executors, json)
        return
    from noonward.studies.fine_tuning.report import claims_tables, findings, seeds_table, write_fine_tuning
    from noonward.studies.fine_tuning.reproduce import SCENARIO, chosen_policies, reproduce_fine_tuning

    names = split_names(policies)
    count = len(chosen_policies(load_scenario(SCENARIO), names)[0])
    total = (1 if jobs is None else 2) * environments * (count + 1)
    with executors as executor, progress_bar(total, "fine-tuning", results=out) as step:
        study = reproduce_fine_tuning(
            signals or (),
            jobs,
            names=names,
            environments=environments,
            seed=seed,
            out=out,
            scenario=SCENARIO,
            progress=step,
            executor=executor,
        )
    records = {half.name: str(half.runs.folder) for half in study.halves}
    place = out / f"reproduce-fine-tuning-seed{seed}" / "report.html"
    report = write_fine_tuning(study, place, command=command_line())
    if json:
        more = {"environments": environments, "seed": seed, "notes": list(study.notes)}
        print(to_json(study.metrics(), **more, records=records, report=str(report)))
        return
    for half in study.halves:
        print(f"{half.name} test environments")
        print_comparison(half.policies)
    seeds = seeds_table(study)
    for shown in [*claims_tables(study), *([] if seeds is None else [seeds])]:
        table = Table(title=shown.title, caption=shown.caption)
        for n, title in enumerate(shown.header):
            table.add_column(title, justify="right" if n else "left", overflow="fold")
        for row in shown.rows:
            table.add_row(*row)
        print_table(table)
    for line in findings(study):
        print(line)
    print_notes(study.notes)
    for name, folder in records.items():
        print(f"records: {folder} ({name})")
    print(f"report:  {report}")


@app.command(name="load-shaping", short_help="Day-ahead plans: Table II and Figs. 3 to 9.")
@option_groups(executors=executor_of)
def load_shaping(
    *,
    profiles: Annotated[
        Path | None, typer.Option(help="File of daily load profiles; by default generated ones (docs/load-shaping.md).")
    ] = None,
    source: Annotated[list[str] | None, typer.Option(help="Source within the file; repeat it for several.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Number of random splits into training and validation days.")] = 3,
    promises: Annotated[
        bool, typer.Option("--promises", help="Plan rolling days, and show whether guarantees hold, instead.")
    ] = False,
    seed: Seed = 0,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    json: Json = False,
) -> None:
    """Table II and Figs. 3 to 9 of the day-ahead plans with probabilistic guarantees (about a minute per draw)."""
    from rich.table import Table

    from noonward.evaluate.metrics import to_json
    from noonward.studies.load_shaping.promises import promise_runs, reproduce_promises
    from noonward.studies.load_shaping.report import promise_table, write_load_shaping, write_promises
    from noonward.studies.load_shaping.reproduce import reproduce_load_shaping

    command = command_line()
    if promises:
        place = out / "reproduce-load-shaping"
        runs = promise_runs(profiles, sources=tuple(source or ()), seed=seed, folder=place / "promises")
        with executors as executor, progress_bar(len(runs), "promises", results=out) as step:
            kept = reproduce_promises(runs, progress=step, executor=executor)
        report = write_promises(kept, place / "promises.html", seed=seed, command=command)
        if json:
            print(to_json(kept.metrics(), seed=seed, report=str(report)))
            return
        print_text_table(promise_table(kept))
        print(f"report:  {report}")
        return
    with executors as executor, progress_bar(draws, "load-shaping", unit="draws", results=out) as step:
        study = reproduce_load_shaping(
            profiles, sources=tuple(source or ()), draws=draws, seed=seed, progress=step, executor=executor
        )
    metrics = study.metrics()
    place = out / "reproduce-load-shaping" / "report.html"
    report = write_load_shaping(study, place, draws=draws, seed=seed, command=command)
    if json:
        print(to_json(metrics, source=study.source, draws=draws, seed=seed, report=str(report)))
        return
    table = Table("figure", "value", "95% interval", "reference", "unit", title=f"load shaping, {study.source}")
    for metric in metrics:
        value = "–" if metric.value is None else f"{metric.value:.4f}"
        interval = "–" if metric.low is None else f"{metric.low:.4f} to {metric.high:.4f}"
        reference = "–" if metric.reference is None else f"{metric.reference:.4f}"
        table.add_row(metric.name, value, interval, reference, metric.unit)
    print_table(table)
    print("references: the paper's values; for guarantee_held_share the promise, 1 - beta")
    for draw, choice in enumerate(study.chosen):
        print(f"cross-validation, draw {draw}: {choice}")
    print(f"report:  {report}")


@app.command(name="edge-inference", short_help="EAT: Tables IX to XII, Figs. 5 to 8, fifteen rates.")
@option_groups(executors=executor_of)
def edge_inference(
    *,
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=2, help="Episodes per cell.")] = 40,
    servers: Annotated[list[int] | None, typer.Option(help="Only cells of 4, 8 or 12 servers; repeat it.")] = None,
    policies: Policies = None,
    nets: Nets = None,
    out: Out = Path("runs"),
    executors: AbstractContextManager[Executor],
    json: Json = False,
) -> None:
    """Tables IX to XII and Figs. 5 to 8 of EAT, beside the published values, at fifteen arrival rates."""
    from noonward.errors import ScenarioError
    from noonward.evaluate.metrics import to_json
    from noonward.studies.edge_inference.published import CELLS, RATES
    from noonward.studies.edge_inference.report import findings, write_edge_inference
    from noonward.studies.edge_inference.reproduce import SEED, reproduce_edge_inference, work_of
    from noonward.studies.edge_inference.tables import study_tables

    if unknown := sorted(set(servers or ()) - set(RATES)):
        raise ScenarioError(
            f"--servers {unknown[0]}: the paper has {', '.join(map(str, RATES))} servers; choose of those"
        )
    names, cells = split_names(policies), [cell for cell in CELLS if servers is None or cell[0] in servers]
    with (
        executors as executor,
        progress_bar(work_of(names, episodes, cells), "edge-inference", results=out) as step,
    ):
        study = reproduce_edge_inference(
            out, names=names, episodes=episodes, cells=cells, progress=step, executor=executor
        )
    place = out / "reproduce-edge-inference" / "report.html"
    report = write_edge_inference(study, place, command=command_line())
    if json:
        more = {"missing": list(study.missing), "findings": findings(study)}
        print(to_json(study.metrics(), episodes=episodes, seed=SEED, report=str(report), **more))
        return
    for shown in study_tables(study):
        print_text_table(shown)
    for line in findings(study):
        print(line)
    print(f"records: {out}")
    print(f"report:  {report}")


@app.command(name="grid-events", short_help="Field tests of data centers that cut power for the grid.")
def grid_events(
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="NOONWARD_FIELD_TESTS",
            metavar="FOLDER",
            help="Folder with SRP_total_power.csv and aps_jobs_by_minute.csv of Emerald AI's field test.",
        ),
    ] = None,
    power: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Power of another field test by time (docs/grid-events.md).")
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its jobs, and when its event was. [default: the columns of --power]"),
    ] = None,
    caps: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Power and throughput of its workloads under caps. [default: Emerald AI's]"),
    ] = None,
    name: Annotated[str, typer.Option(help="Its name in figures.")] = "test",
    timezone: Annotated[str | None, typer.Option(help="Time zone of times without one: Europe/London.")] = None,
    idle_w: Annotated[float, typer.Option(min=0, help="Power of a stopped GPU that is left idle, W.")] = 60.0,
    node_gpus: Annotated[int, typer.Option(min=1, help="GPUs of a node.")] = 8,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Field tests of data centers that cut power for the grid, held against our physics, caps and pausing."""
    from noonward.evaluate.metrics import to_json
    from noonward.studies.grid_events.report import grid_event_tables, write_grid_events
    from noonward.studies.grid_events.reproduce import reproduce_grid_events

    study = reproduce_grid_events(
        data=None if power is not None else data,
        power=power,
        events=events,
        caps=caps,
        name=name,
        timezone=timezone,
        idle_w=idle_w,
        node_gpus=node_gpus,
    )
    report = write_grid_events(study, out / "reproduce-grid-events" / "report.html", command=command_line())
    if json:
        print(to_json(study.metrics(), report=str(report)))
        return
    for shown in grid_event_tables(study):
        print_text_table(shown)
    if not study.held:
        print("no measured power was given: --data FOLDER or --power FILE holds it against our physics")
    print(f"report:  {report}")


@app.command(name="flexible-jobs", short_help="Jobs that bend: GAIA, CarbonScaler, a field test.")
def flexible_jobs(
    gaia: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GAIA's 1,000 jobs (its src/cluster_traces/pai_1k.csv).")
    ] = None,
    carbonscaler: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A profile of CarbonScaler (its src/profiles/nbody10k.csv); repeat it."),
    ] = None,
    aps: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Power by job and minute of Emerald AI's field test of 1 May 2025."),
    ] = None,
    signals: SignalFiles = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Jobs that bend against what others published: GAIA's suspension, CarbonScaler's schedules, a field test.

    The files are theirs, and not part of this package; a part whose file is not given is left out.
    """
    from noonward.evaluate.metrics import to_json
    from noonward.studies.flexible_jobs.reproduce import flexible_table, reproduce_flexible

    study = reproduce_flexible(gaia, carbonscaler or [], aps, signals or [], seed=seed)
    if json:
        print(to_json(study.metrics(), seed=seed, left_out=list(study.left_out)))
        return
    print_text_table(flexible_table(study))
    for part in study.left_out:
        print(f"left out: {part}")
