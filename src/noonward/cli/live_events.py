"""``noonward live event`` and ``events``: grid events of a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from noonward.cli.durations import duration
from noonward.cli.live_client import DEFAULT_ADDRESS, Address, AnswerJson, open_client, print_answer
from noonward.cli.options import print_table
from noonward.units import HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from noonward.live.client import Client
    from noonward.live.demand.shown import GridEventShown


def event(
    site: Annotated[str, typer.Argument(help="Name of the site.")],
    cut: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Share of the baseline to leave out, e.g. 25%.")
    ] = None,
    target_kw: Annotated[float | None, typer.Option(min=0.0, help="Power to stay at or below, kW.")] = None,
    hours: Annotated[
        float, typer.Option(parser=duration(HOUR_S, bare=True), metavar="DURATION", help="Length: 3h, 90m.")
    ] = 3.0,
    notice: Annotated[
        float | None,
        typer.Option(
            parser=duration(MINUTE_S), metavar="DURATION", help="Time until it begins: 10min; now by default."
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option(metavar="TIME", help="UTC time at which it begins, e.g. 2026-07-12T20:00Z.")
    ] = None,
    baseline_kw: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Power without the event, kW; that of the contract, or the last hour's mean, by default."
        ),
    ] = None,
    baseline: Annotated[
        Literal["firm", "high-4-of-5"],
        typer.Option(help="high-4-of-5: measured on the five days before of the same kind without an event."),
    ] = "firm",
    ramp: Annotated[
        float | None,
        typer.Option(
            parser=duration(MINUTE_S), metavar="DURATION", help="Time over which the limit falls; 15 min by default."
        ),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the site's event instead.")] = False,
    number: Annotated[
        int | None, typer.Option(min=1, help="With --cancel: which one, if several are open at the site.")
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Call a grid event at a site, or cancel one.

    A policy event-response(...) holds starts, caps and suspends jobs to follow it. Needs a token of scope admin.
    """
    from noonward.cli.flexibility import share_of
    from noonward.errors import ScenarioError

    if cancel:
        if cut is not None or target_kw is not None or notice is not None or start is not None:
            raise ScenarioError("--cancel goes with --number alone; leave out what a new event would ask")
        with open_client(address) as client:
            gone = client.cancel_event(_open_number(client, site, number))
        print(f"grid event {gone.id} at {gone.site} is cancelled")
        return
    if number is not None:
        raise ScenarioError("--number names an event to cancel; add --cancel, or leave it out")
    if (cut is None) == (target_kw is None):
        raise ScenarioError("an event needs --cut or --target-kw, and not both")
    with open_client(address) as client:
        from noonward.live.demand.events import EventCall

        call = EventCall(
            site=site, target_kw=target_kw, cut=None if cut is None else share_of("--cut", cut), hours=hours,
            notice_min=notice, start=start, baseline_kw=baseline_kw, ramp_min=ramp,
            baseline=baseline,
        )  # fmt: skip
        called = client.call_event(call)
    made = called.event
    print(
        f"grid event {made.id} at {made.site}: {made.target_kw:.4g} kW at most (baseline {made.baseline_kw:.4g} kW) "
        f"from {made.start} to {made.end}"
    )
    if called.remark:
        typer.echo(f"note: {called.remark}", err=True)


def _open_number(client: Client, site: str, number: int | None) -> int:
    """Returns the number of a site's event that is to be cancelled.

    Raises:
        ScenarioError: There is none, or several and none is named.
    """
    from noonward.errors import ScenarioError

    if number is not None:
        return number
    mine = [each.id for each in client.grid_events() if each.site == site and each.state in ("announced", "active")]
    if not mine:
        raise ScenarioError(f"no grid event of {site} is open; noonward live events lists those that were")
    if len(mine) > 1:
        listed = " and ".join(str(each) for each in sorted(mine))
        raise ScenarioError(f"grid events {listed} of {site} are open; name one of them with --number")
    return mine[0]


def events(address: Address = DEFAULT_ADDRESS, json: AnswerJson = False) -> None:
    """List grid events: what was asked, and how it was kept."""
    from rich.table import Table

    with open_client(address) as client:
        found = client.grid_events()
    if json:
        print_answer(found)
        return
    table = Table(title=f"{len(found)} grid events, newest first")
    texts = ("site", "state", "start", "end", "told by")
    for title in ("event", "site", "state", "start", "end", "target, kW", "left out, kWh", "of", "missed", "told by"):
        table.add_column(title, justify="left" if title in texts else "right")
    for one in found:
        table.add_row(
            str(one.id), one.site, one.state, one.start, one.end, f"{one.target_kw:.4g}", *_kept(one), one.told_by
        )
    print_table(table)


def _kept(one: GridEventShown) -> tuple[str, str, str]:
    """Returns energy left out, energy asked and missed intervals, as they are printed."""
    if not one.asked_kwh:
        return "-", "-", "-"
    return f"{one.left_out_kwh:.4g}", f"{one.asked_kwh:.4g}", str(one.missed)
