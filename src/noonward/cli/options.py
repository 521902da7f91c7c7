"""Options and helpers that several commands share."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.durations import duration
from noonward.cli.option_groups import without
from noonward.files import require_writable

if TYPE_CHECKING:
    from rich.table import Table

    from noonward.evaluate.table import TextTable
    from noonward.runtime.executor import Executor

INTERRUPTED = 130
"""Exit code after an interrupt."""


class Interrupted(SystemExit):
    """Ends a command that was interrupted and has already printed how to continue."""

    def __init__(self) -> None:
        super().__init__(INTERRUPTED)


def packaged_names(incomplete: str) -> list[str]:
    """Returns the packaged scenarios that begin so, for the shell's completion."""
    from noonward.data.scenarios.load import packaged_scenarios

    return [name for name in packaged_scenarios() if name.startswith(incomplete)]


def policy_list(incomplete: str) -> list[str]:
    """Returns the lists of policies that begin so, the last name completed, for the shell's completion."""
    from noonward.schedule.policies import policies

    before, comma, last = incomplete.rpartition(",")
    names = dict.fromkeys(policy.name for policy in policies())
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def one_scenario(argument: str | None, option: str | None) -> str | None:
    """Returns the scenario that a command names as an argument or by ``--fleet``; None if it names none.

    Raises:
        ScenarioError: It names two.
    """
    from noonward.errors import ScenarioError

    if argument is not None and option is not None:
        raise ScenarioError(f"the scenario is given twice ({argument}, --fleet {option}); give it once")
    return argument or option


def _use_nets(folder: Path | None) -> Path | None:
    """Lets the command know the trained policies of a folder."""
    if folder is not None:
        from noonward.schedule.policies import use_nets

        use_nets(folder)
    return folder


ScenarioName = Annotated[
    str,
    typer.Argument(
        autocompletion=packaged_names,
        metavar="SCENARIO",
        help="A packaged scenario (see 'noonward scenario list') or a .yaml file.",
    ),
]
EnvironmentsOrFit = Annotated[
    int | None,
    typer.Option(
        "--environments",
        "-n",
        min=1,
        help="Number of environments. [default: 10, or 1 if jobs and window allow only one]",
    ),
]
Windows = Annotated[
    int | None,
    typer.Option("--windows", min=1, help="Windows without overlap, spread over the days of your job table."),
]
Weeks = Annotated[int | None, typer.Option("--weeks", min=1, help="The same, of a week each.")]
Environments = Annotated[int, typer.Option("--environments", "-n", min=1, help="Number of environments.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of environments and policies.")]
SignalFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--signals",
        help="File of prices and carbon intensities. Repeat it: later files fill gaps.",
    ),
]
JobFile = Annotated[
    Path | None, typer.Option("--jobs", help="Job table, or a trace to sample GPU counts and durations from.")
]
History = Annotated[
    Path | None,
    typer.Option(help="Dated job table that planners sample future jobs from. [default: the table's own past]"),
]
FirstDay = Annotated[
    datetime | None,
    typer.Option(
        "--from", formats=["%Y-%m-%d"], metavar="DAY", help="First day of the window (UTC); overrides the scenario."
    ),
]
LastDay = Annotated[
    datetime | None,
    typer.Option("--to", formats=["%Y-%m-%d"], metavar="DAY", help="Last day of the window (UTC), with --from."),
]
Today = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        "--today",
        metavar="POLICY",
        help="Policy that changes are measured against. [default: the scenario's, or the recorded history]",
    ),
]
CurrencyRate = Annotated[
    str | None,
    typer.Option("--currency", metavar="NAME=USD", help="Show money in a currency at a rate: EUR=1.08. [default: USD]"),
]
Report = Annotated[bool, typer.Option(help="Write the HTML report.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the scenario: economics.carbon_usd_per_t=50."),
]


def writable(folder: Path | None) -> Path | None:
    """Returns the folder of the option --out, if one is given, checked before anything is computed.

    Raises:
        FileError: A file is named where a folder is meant, or nothing can be written there.
    """
    if folder is not None:
        require_writable(folder, "--out")
    return folder


Nets = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        callback=_use_nets,
        help="Folder with policies of further training seeds, as studies-data/nets of the repository. "
        "[default: packaged policies alone]",
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for records and reports.", callback=writable)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object with all metrics.")]
NoBound = Annotated[bool, typer.Option("--no-bound", help="Skip the bound: no share of possible improvement.")]
BoundSeconds = Annotated[
    float | None,
    typer.Option(
        "--bound-seconds",
        parser=duration(1.0, bare=True),
        metavar="DURATION",
        help="Time limit for each environment's bound; a shorter one gives a looser, still valid bound.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Number of worker processes (1: no extra process). [default: one per core]"),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDRESS", help="Run on a Ray cluster (its address), or on this machine ('local')."),
]
Policies = Annotated[
    str | None,
    typer.Option(
        "--policies",
        autocompletion=policy_list,
        help="Comma-separated policies (see 'noonward policies'): names, names with arguments such as "
        "'greedy-energy(gpus=12)', module:Class of your own, or a trained policy's .npz file.",
    ),
]
FleetPolicy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        autocompletion=policy_list,
        help="Policy that runs the fleet. [default: the scenario's baseline]",
    ),
]


def open_scenario(
    name: ScenarioName,
    signals: SignalFiles = None,
    jobs: JobFile = None,
    first: FirstDay = None,
    last: LastDay = None,
    history: History = None,
    settings: Settings = None,
) -> Any:
    """Returns the scenario that the options describe: files go before single values, days above both."""
    from noonward.data.scenarios.load import load_scenario, with_days, with_files, with_settings
    from noonward.errors import ScenarioError

    if signals or jobs:
        scenario = with_files(load_scenario(name), signals or (), jobs)
        scenario = with_settings(scenario, settings) if settings else scenario
    else:
        scenario = load_scenario(name, settings or ())
    if history is not None:
        if not history.is_file():
            raise ScenarioError(f"--history {history} does not exist; check the path")
        scenario = with_settings(scenario, [f"jobs.history={json.dumps(str(history))}"])
    if first is not None:
        return with_days(scenario, first.date(), None if last is None else last.date())
    if last is not None:
        raise ScenarioError(f"--to {last.date()} was given without --from; give the first day too")
    return scenario


stated_scenario = without(open_scenario, "signals", "jobs", "first", "last", "history")
"""The scenario of a command that takes changes of single values only."""


def require_cluster(scenario: Any, command: str) -> None:
    """Raises ScenarioError unless a scenario is of kind ``cluster``, the only one that some commands take."""
    from noonward.errors import ScenarioError
    from noonward.model.kinds import CLUSTER

    if scenario.kind != CLUSTER.name:
        raise ScenarioError(
            f"{command} takes scenarios of kind {CLUSTER.name}; {scenario.name!r} is of kind {scenario.kind}; choose "
            "another scenario"
        )


def time_option(option: str, text: str | None, timezone: str = "UTC") -> datetime:
    """Returns the UTC time that an option states; now where it is left out.

    Args:
        option: Name of the option, for messages.
        text: Its value, with an offset or on the clock.
        timezone: Clock of a time without an offset: an IANA name, or an offset such as +01:00.

    Raises:
        ScenarioError: It is no time, or the clock skips it.
        DataError: There is no such time zone.
    """
    from noonward.data.clock import Clock, time_of
    from noonward.errors import DataError, ScenarioError

    clock = Clock(timezone)
    _ = clock.offset  # an unknown time zone has its own message
    if text is None:
        return datetime.now(UTC)
    try:
        return time_of(text, clock)
    except DataError as error:
        raise ScenarioError(f"{option}: {error}") from None


def split_names(names: str | None) -> list[str] | None:
    """Returns the names of a comma-separated option; commas within brackets separate a name's arguments."""
    import re

    return None if names is None else [name.strip() for name in re.split(r",(?![^()]*\))", names) if name.strip()]


def executor_of(workers: Workers = None, ray: RayAddress = None) -> AbstractContextManager[Executor]:
    """Returns what opens what runs are carried out by: processes of this machine, or Ray.

    A command with this group is a long one. Where there is no terminal it says at once that it has begun: what it needs
    to know of its scenario takes seconds to read. So this group comes before that of the scenario.
    """
    if not sys.stderr.isatty():
        print(f"{command_line()}: starting", file=sys.stderr, flush=True)
    return opened(workers, ray)


@contextmanager
def opened(workers: int | None, ray: str | None) -> Iterator[Executor]:
    """Opens what runs are carried out by.

    Raises:
        ScenarioError: Both are given.
        MissingExtraError: Ray is asked for and not installed.
    """
    from contextlib import closing

    from noonward.errors import ScenarioError
    from noonward.runtime.processes import Processes
    from noonward.runtime.ray_cluster import RayCluster

    if workers is not None and ray is not None:
        raise ScenarioError(f"--workers {workers} and --ray {ray} were given; a Ray cluster has its own; leave out one")
    with closing(Processes(workers) if ray is None else RayCluster(ray)) as executor:
        yield executor


def shared_work(executor: Executor) -> dict[str, float] | None:
    """Returns how runs were shared among workers, for ``--json``; None if one core carried them out."""
    return executor.work.as_dict() if executor.work.cores > 1 else None


def print_work(executor: Executor, unit: str = "runs") -> None:
    """Prints how runs were shared among workers and what that saved; nothing if one core carried them out."""
    if executor.work.cores > 1:
        print(f"work:    {executor.work.told(unit)}")


def command_line() -> str:
    """Returns the command as it was given, for reports to say what made them."""
    return shlex.join(["noonward", *sys.argv[1:]])


def print_table(table: Table) -> None:
    """Prints a table: folded into a terminal, as wide as it needs to be anywhere else."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        endless = Console(width=10_000)
        console = Console(width=max(console.width, endless.measure(table).maximum))
    console.print(table)


def print_notes(notes: Iterable[str]) -> None:
    """Prints notes, a line each."""
    for note in notes:
        print(f"note: {note}")


def print_text_table(shown: TextTable) -> None:
    """Prints a table of text with its title and caption."""
    from rich.table import Table

    table = Table(title=shown.title, caption=shown.caption)
    for n, title in enumerate(shown.header):
        table.add_column(title, justify="right" if n else "left", overflow="fold", no_wrap=not n)
    for row in shown.rows:
        table.add_row(*row)
    print_table(table)
