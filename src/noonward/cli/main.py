"""The ``noonward`` command: its subcommands, and how errors reach the user."""

from __future__ import annotations

import sys
from copy import copy
from functools import cache
from pathlib import Path
from traceback import format_exception
from typing import Any

import typer

from noonward import __version__
from noonward.cli import (
    advise,
    bench,
    bound,
    compare,
    data,
    doctor,
    edge,
    fit_forecast,
    flexibility,
    import_,
    init,
    live,
    live_client,
    plan,
    policies,
    report,
    reproduce,
    scenario,
    serve,
    simulate,
    tenants,
    train,
    warmup,
    what_if,
    when,
)
from noonward.cli.compile_notice import CompileNotice
from noonward.cli.help import ALIASES, Root
from noonward.cli.interruptible import ended_alike, run_interruptible, what_is_kept
from noonward.cli.options import INTERRUPTED, Interrupted
from noonward.errors import NoonwardError
from noonward.notices import listening

app = typer.Typer(
    name="noonward",
    cls=Root,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Run AI jobs where and when electricity is cheap and clean.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
        print(f"noonward {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    traceback: bool = typer.Option(False, "--traceback", help="Show full tracebacks."),
) -> None:
    pass


app.command(name="compare")(compare.compare)
app.command(name="report")(report.report)
app.command(name="simulate")(simulate.simulate)
app.command(name="bound")(bound.bound)
app.command(name="capacity-plan")(plan.plan)
app.command(name="trade-off")(what_if.trade_off)
app.command(name="sensitivity")(what_if.sensitivity)
app.command(name="when")(when.when)
app.command(name="event")(flexibility.event)
app.command(name="flexibility")(flexibility.flexibility)
app.command(name="tenants")(tenants.tenants)
app.command(name="import")(import_.import_)
app.command(name="init")(init.init)
app.command(name="fit-forecast")(fit_forecast.fit_forecast)
app.command(name="policies")(policies.policies)
app.command(name="bench")(bench.bench)
app.command(name="train")(train.train)
app.command(name="compile")(warmup.warmup)
app.command(name="advise")(advise.advise)
app.command(name="serve")(serve.serve)
app.command(name="submit")(live_client.submit)
app.command(name="jobs")(live_client.jobs)
app.command(name="output")(live_client.output)
app.command(name="why")(live_client.why)
app.command(name="sites")(live_client.sites)
app.command(name="status")(live_client.status)
app.command(name="savings")(live_client.savings)
app.command(name="doctor")(doctor.doctor)
app.add_typer(live.app, name="live")
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(scenario.app, name="scenario")
app.add_typer(data.app, name="data")
app.add_typer(edge.app, name="edge")


@cache
def _built(word: str = "") -> Any:
    """Returns what parses the command line: to build one command takes a tenth of the time that all of them take.

    Args:
        word: First word of the command line; if it names no command, all are built.
    """
    word = ALIASES["noonward"].get(word, word)
    named = copy(app)
    named.registered_commands = [each for each in app.registered_commands if each.name == word]
    named.registered_groups = [each for each in app.registered_groups if each.name == word]
    return typer.main.get_command(named if named.registered_commands or named.registered_groups else app)


def main() -> None:
    """Runs the command line.

    Exit codes: 0 done; 1 an internal error; 2 the user's input; 130 interrupted by Ctrl-C or SIGTERM (what was recorded
    is kept).
    """
    # A user's own policies (module:Class) are also searched in the working folder.
    traced = "--traceback" in sys.argv
    sys.argv[:] = [word for word in sys.argv if word != "--traceback"]
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    service = bool(set(sys.argv[1:2]) & {"edge", "serve", "live"})
    try:
        with listening(CompileNotice()), ended_alike():
            command = _built(*sys.argv[1:2])
            if service:  # they answer Ctrl-C themselves, in this thread
                command(prog_name="noonward")
            else:
                run_interruptible(lambda: command(prog_name="noonward"))
    except NoonwardError as error:
        if traced:
            print(getattr(error, "trace", "") or "".join(format_exception(error)), file=sys.stderr)
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        print(f"error: {error}; check that the path exists and can be read or written", file=sys.stderr)
        raise SystemExit(2) from None
    except SystemExit as end:
        if end.code == INTERRUPTED and not isinstance(end, Interrupted):
            print("interrupted" if service else what_is_kept(), file=sys.stderr)
        raise


if __name__ == "__main__":
    main()
