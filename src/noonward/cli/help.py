"""What ``--help`` shows beyond each command's own words: panels of commands, examples, and names of values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from typer.core import TyperGroup

PANELS: Final = {
    "Evaluate": (
        "compare",
        "trade-off",
        "sensitivity",
        "when",
        "event",
        "flexibility",
        "bound",
        "capacity-plan",
        "simulate",
        "report",
    ),
    "Your data": ("import", "init", "scenario", "data"),
    "Live": ("serve", "advise", "submit", "jobs", "output", "why", "sites", "status", "savings", "tenants"),
    "Operate": ("live",),
    "Images": ("edge",),
    "Learn": ("train", "fit-forecast", "policies"),
    "Project": ("reproduce", "bench", "compile", "doctor"),
}
"""Commands by panel of ``noonward --help``; a test holds every command to be in one."""
EXAMPLES: Final = {
    "compare": ("compare tiny", "compare fleet.yaml --windows 6"),
    "trade-off": ("trade-off tiny --policy booked-persistence -n 4",),
    "sensitivity": ("sensitivity tiny --policy booked-persistence -n 4",),
    "when": (
        "when fleet.yaml --gpus 8 --hours 6h --by '2026-11-24 18:00'",
        "when --gpus 8 --gpu H100-SXM --hours 6h --by 2026-11-24 --zones DE,FR --signals mine/signals.csv",
    ),
    "event": ("event training-days --cut 25% --hours 3h --notice 10min",),
    "tenants": ("tenants fleet.yaml --policy booked-persistence", "tenants fleet.yaml -n 8 --one-more --bound"),
    "flexibility": ("flexibility training-days", "flexibility tiny --cuts 10%,25% --hours 1h,3h --notices 0,1h"),
    "bound": (
        "bound tiny -n 2",
        "bound fine-tuning --non-clairvoyant",
        "bound training-days --freedom all --policies patient,suspend-threshold --loads 50%,85% -n 5",
    ),
    "capacity-plan": ("capacity-plan load-shaping --promise 0.9",),
    "simulate": ("simulate tiny --policy booked-persistence", "simulate tiny --policy own_scheduler:CheapestSite"),
    "policies": ("policies", "policies --all --kind edge"),
    "import": (
        "import sacct.txt DE_2023_hourly.csv --timezone Europe/Berlin",
        "import sacct.txt DE_2023_hourly.csv prices.csv --timezone Europe/Berlin --fx EUR=1.08 --out mine",
    ),
    "init": (
        "init fleet.yaml --site berlin=DE:64xA100-80-SXM --jobs mine/jobs.csv --signals mine/signals.csv",
        "init --gpus",
        "init --zones --json",
    ),
    "fit-forecast": ("fit-forecast mine --signals mine/signals.csv --zones DE,FR",),
    "bench": ("bench", "bench plan", "bench scale --jobs 1e6 --sites 40"),
    "train": (
        "train tiny --algorithm masac --epochs 2 --hyper steps=200 --hyper updates=50 --export own.npz",
        "train --resume runs/train-tiny-masac-seed0 --epochs 10",
    ),
    "compile": ("compile", "compile fine-tuning"),
    "advise": (
        "advise mine.yaml --queue squeue.txt --home north",
        "advise mine.yaml --slurm --home north --format sbatch",
    ),
    "serve": ("serve --demo", "serve live.yaml --shadow"),
    "submit": ("submit 'sleep 6' --work 1h", "submit ./train.sh --work 6h --gpus 8 --max-delay 12h"),
    "jobs": ("jobs", "jobs --state running --json"),
    "output": ("output 1", "output 1 --size 1024"),
    "why": ("why 1",),
    "sites": ("sites",),
    "status": ("status",),
    "savings": ("savings --days 14",),
    "doctor": ("doctor",),
    "report": ("report runs/tiny-fea703a7-seed0",),
    "live backup": ("live backup copy.sqlite",),
    "live restore": ("live restore copy.sqlite --folder other",),
    "live vacuum": ("live vacuum",),
    "live replay": ("live replay live.yaml",),
    "live drain": ("live drain warsaw",),
    "live undrain": ("live undrain warsaw",),
    "live dispatch": ("live dispatch warsaw --off", "live dispatch warsaw --on"),
    "live event": ("live event warsaw --cut 25% --hours 3 --notice 10min", "live event warsaw --cancel"),
    "live events": ("live events",),
    "live audit": ("live audit",),
    "live policy": ("live policy local-fcfs",),
    "live cancel": ("live cancel 1",),
    "live hold": ("live hold 1",),
    "live release": ("live release 1",),
    "live pin": ("live pin 1 warsaw",),
    "live veto": ("live veto 1 warsaw",),
    "live token add": ("live token add ci --scope submit --days 90",),
    "live token rotate": ("live token rotate ci",),
    "live token revoke": ("live token revoke ci",),
    "live token list": ("live token list",),
    "reproduce dvfs-training": ("reproduce dvfs-training", "reproduce dvfs-training --learned"),
    "reproduce fine-tuning": ("reproduce fine-tuning", "reproduce fine-tuning --map"),
    "reproduce load-shaping": ("reproduce load-shaping --draws 4",),
    "reproduce edge-inference": ("reproduce edge-inference --servers 4",),
    "reproduce grid-events": ("reproduce grid-events",),
    "reproduce flexible-jobs": ("reproduce flexible-jobs --gaia pai_1k.csv --aps aps_jobs_by_minute.csv",),
    "scenario list": ("scenario list",),
    "scenario show": ("scenario show tiny", "scenario show tiny --set window_h=24"),
    "scenario check": ("scenario check fleet.yaml", "scenario check fleet.yaml --explain"),
    "scenario schema": ("scenario schema",),
    "data check": ("data check mine/signals.csv --zones DE,FR", "data check mine/jobs.csv --scenario fleet.yaml"),
    "data show": ("data show mine/signals.csv --zones DE,FR --out signals.html",),
    "data tariff": ("data tariff rate.json --name summer",),
    "data peaks": ("data peaks load.csv --clock America/New_York --peaks 5 --months 6,7,8,9",),
    "data events": ("data events https://vtn.example/openadr3/3.1.0 events.json --client ID",),
    "data generate": ("data generate tiny --out generated",),
    "edge up": ("edge up",),
    "edge submit": ("edge submit 'a lighthouse at dusk' --gang 2 --wait",),
    "edge status": ("edge status --watch",),
    "edge cancel": ("edge cancel image-000001",),
    "edge down": ("edge down",),
}
"""Command lines at the end of each command's help, without the word ``noonward``."""
ALIASES: Final = {
    "noonward": {"plan": "capacity-plan", "warmup": "compile", "signals": "data"},
    "data": {"signals": "check", "jobs": "check"},
    "scenario": {"validate": "check"},
}
"""Earlier names of commands, by group; they keep working, and help does not list them."""
METAVARS: Final = {
    **dict.fromkeys(
        (
            "environments", "environment", "seed", "seeds", "workers", "training_seeds", "samples", "draws", "episodes",
            "epochs", "passes", "gpus", "gpus_max", "gang", "servers", "count", "tries", "warm_up", "days", "port",
            "steps_max", "weeks", "windows", "sites", "node_gpus", "skip_bad", "tasks", "parallelism", "batch", "limit",
        ),
        "N",
    ),
    **dict.fromkeys(("signals", "jobs", "history", "files", "file", "config", "copy", "to"), "FILE"),
    **dict.fromkeys(("profiles", "page"), "FILE"),
    **dict.fromkeys(("export",), "FILE.npz"),
    **dict.fromkeys(("out", "folder", "resume"), "FOLDER"),
    **dict.fromkeys(("beta", "eps", "promise", "pue", "run_share", "guidance", "rate"), "NUMBER"),
    **dict.fromkeys(("peak", "revenue", "carbon_price", "late_price"), "USD"),
    **dict.fromkeys(("late_usd_per_gpu_hour", "waiting_usd_per_hour", "gpu_usd_per_hour"), "USD"),
    **dict.fromkeys(("zones",), "ZONE,ZONE"),
    **dict.fromkeys(("policies",), "NAME,NAME"),
    "slack_h": "HOURS",
    "fill_gaps": "HOURS",
    "lease": "SECONDS",
    "idle_w": "WATTS",
    "first_day": "DAY",
    "salt": "TEXT",
    "fx": "RATE",
    "origin": "SITE",
    "column": "KEY=NAME",
    "class": "NAME=RULE",
    "class_slack_h": "NAME=DURATION",
    "class_sites": "NAME=SITE,SITE",
    "decimal": "SIGN",
    "date_order": "ORDER",
    "price_unit": "UNIT",
    "carbon_unit": "UNIT",
    "also": "SCENARIO",
    "chdir": "FOLDER",
    "output": "FILE",
    "width": "PIXELS",
    "work": "DURATION",
    "address": "URL",
    "database": "URL",
}  # fmt: skip
"""Names of values in help, by parameter; others are shown by the option's own name in capitals."""


def commands_of(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields each command that does something, with its words.

    Args:
        group: A command or group of commands.
        before: Words that lead to it.
    """
    below = getattr(group, "commands", None)
    if not below:
        yield " ".join(before), group
        return
    for name, each in below.items():
        yield from commands_of(each, (*before, name))


class Group(TyperGroup):
    """A group of commands that also answer to their earlier names."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns a command by its name or an earlier one; None if there is none."""
        return super().get_command(ctx, ALIASES.get(self.name or "", {}).get(cmd_name, cmd_name))


class Root(Group):
    """The root of the command line; sets what help shows of the commands below it."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        for words, command in commands_of(self):
            lines = "\n".join(f"  noonward {each}" for each in EXAMPLES.get(words, ()))
            command.epilog = f"\b\nExamples:\n{lines}" if lines else None
            for parameter in command.params:
                _name_value(parameter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands, panel by panel."""
        width = max(map(len, self.commands))
        for title, names in PANELS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), self.commands[name].get_short_help_str(formatter.width - width - 6))
                        for name in names
                    ]
                )


def _name_value(parameter: Any) -> None:
    """Gives a parameter's value a name for help, unless it has one, takes no value, or is a choice."""
    if not parameter.opts[0].startswith("-"):
        parameter.display_type_rich = lambda ctx: ""  # an argument's name says what it is; its Python type does not
        usage = re.sub("[{}]", "", getattr(parameter, "_usage_display_name", str)())  # braces: what is required
        if parameter.metavar is None:
            usage = usage.replace(parameter.name, METAVARS.get(parameter.name, parameter.name.upper()))
        parameter._usage_display_name = lambda: usage
    if parameter.metavar is not None or getattr(parameter, "is_flag", False):
        return
    described = getattr(parameter, "type_descriptor", None)
    if getattr(described, "is_choice", False) or getattr(getattr(parameter, "type", None), "choices", None):
        return
    key = max(parameter.opts, key=len).lstrip("-").replace("-", "_")
    parameter.metavar = METAVARS.get(key, key.upper())
