"""``noonward submit``, ``jobs``, ``output``, ``why``, ``sites``, ``status``, ``savings``: questions to a service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noonward.cli.durations import duration
from noonward.cli.options import print_table

if TYPE_CHECKING:
    from noonward.live.api.shown import ServiceShown
    from noonward.live.client import Client

Address = Annotated[str, typer.Option(envvar="NOONWARD_ADDRESS", help="Address of the service.")]
AnswerJson = Annotated[bool, typer.Option("--json", help="Print the service's answer as JSON.")]
DEFAULT_ADDRESS = "http://127.0.0.1:8470"


def open_client(address: str) -> Client:
    """Returns a client of the service at an address.

    Raises:
        MissingExtraError: The extra ``live`` is not installed.
    """
    from noonward.errors import MissingExtraError

    try:
        from noonward.live.client import Client
    except ImportError as error:
        raise MissingExtraError(error.name or "msgspec", "live") from error
    return Client(address)


def print_answer(found: Any) -> None:
    """Prints what the service answered as JSON, as its interface gives it."""
    from noonward.live.client import as_json

    print(as_json(found))


def submit(
    command: Annotated[str | None, typer.Argument(help="Command that the job runs.")] = None,
    name: Annotated[str | None, typer.Option(help="Name; the command's first word by default.")] = None,
    work: Annotated[
        float | None,
        typer.Option(
            parser=duration(1.0, bare=True),
            metavar="WORK",
            help="Work: the run time for classes of fixed duration (6h, 90m), otherwise a number of units.",
        ),
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs it needs (minimum).")] = 1,
    gpus_max: Annotated[
        int | None, typer.Option(min=1, help="GPUs it can use (maximum). [default: the minimum]")
    ] = None,
    max_delay: Annotated[
        float | None,
        typer.Option(parser=duration(1.0), metavar="DURATION", help="Longest delay of its start: 12h, 90m."),
    ] = None,
    class_: Annotated[str | None, typer.Option("--class", help="Class of the fleet.")] = None,
    origin: Annotated[str | None, typer.Option(help="Origin (ingress point) of the fleet.")] = None,
    site: Annotated[str | None, typer.Option(help="Site it must run at.")] = None,
    deadline: Annotated[
        float | None,
        typer.Option(parser=duration(1.0), metavar="DURATION", help="It ends within this time from now: 12h, 90m."),
    ] = None,
    time: Annotated[
        float | None,
        typer.Option(parser=duration(1.0), metavar="DURATION", help="Longest run time; then its cluster ends it."),
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Array: number of jobs; each has a NOONWARD_TASK.")] = None,
    after: Annotated[
        list[int] | None, typer.Option(min=1, help="Job that is done before it is considered (repeatable).")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Variable of its command (repeatable).")
    ] = None,
    chdir: Annotated[str | None, typer.Option(help="Folder in which it runs, at the site.")] = None,
    output: Annotated[str | None, typer.Option(help="File for what it prints, at the site.")] = None,
    image: Annotated[str | None, typer.Option(help="Container image in which it runs.")] = None,
    partition: Annotated[str | None, typer.Option(help="Partition of its cluster.")] = None,
    qos: Annotated[str | None, typer.Option(help="Quality of service at its cluster.")] = None,
    account: Annotated[str | None, typer.Option(help="Account at its cluster.")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Give it its nodes alone.")] = False,
    priority: Annotated[
        int | None,
        typer.Option(min=-100, max=100, help="Jobs of a higher one come first; default: that of its class."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: repeating the call with it submits nothing twice.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="JSON file with one job or a list of jobs, instead.")] = None,
    address: Address = DEFAULT_ADDRESS,
    json: AnswerJson = False,
) -> None:
    """Submit a job, or a file of jobs, to a running service."""
    import contextlib

    from noonward.errors import NoonwardError, ScenarioError

    next_slot = None
    with open_client(address) as client:
        if file is not None:
            jobs = _from_file(file)
        elif command is None or work is None:
            raise ScenarioError("give a command and --work, or --file with jobs; docs/live.md shows both")
        else:
            given: dict[str, Any] = {
                "name": name or command.split()[0], "command": command, "work": work, "gpus_min": gpus,
                "gpus_max": gpus_max, "max_delay_s": max_delay, "class": class_, "origin": origin, "site": site,
                "deadline_s": deadline, "time_limit_s": time, "tasks": tasks, "after": after,
                "environment": _variables(env), "workdir": chdir, "output": output, "image": image,
                "partition": partition, "qos": qos, "account": account, "exclusive": exclusive or None,
                "priority": priority,
            }  # fmt: skip
            from noonward.live.requests import request_of

            jobs = [request_of({field: value for field, value in given.items() if value is not None})]
        receipt = client.submit(*jobs, key=key)
        if receipt.new and not json:
            with contextlib.suppress(NoonwardError):  # the jobs are stored all the same
                next_slot = client.service().next_slot
    if json:
        print_answer(receipt)
        return
    shown = ", ".join(map(str, receipt.ids[:10])) + (" ..." if len(receipt.ids) > 10 else "")
    known = len(receipt.ids) - receipt.new
    print(
        f"submitted {receipt.new} job{'s' * (receipt.new != 1)}: {shown}"
        + (f" ({known} known already)" if known else "")
        + (f"; the service decides next at {next_slot}" if next_slot else "")
    )


def _variables(given: list[str] | None) -> dict[str, str] | None:
    """Returns variables from NAME=VALUE."""
    from noonward.errors import ScenarioError

    for each in given or ():
        if "=" not in each:
            raise ScenarioError(f"--env {each!r} has no '='; write --env NAME=VALUE")
    return None if given is None else dict(each.split("=", 1) for each in given)


def _from_file(path: Path) -> list[Any]:
    """Returns the jobs in a file."""
    import json

    from noonward.errors import DataError
    from noonward.live.requests import request_of

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is not JSON: {error}") from None
    return [request_of(each) for each in (content if isinstance(content, list) else [content])]


def output(
    job: Annotated[int, typer.Argument(min=1, help="Number of the job.")],
    size: Annotated[
        int, typer.Option(min=1, max=1024, metavar="KIB", help="How much of its end, KiB: up to 1024.")
    ] = 64,
    address: Address = DEFAULT_ADDRESS,
    json: AnswerJson = False,
) -> None:
    """Print the end of what a job has printed.

    Its owner and administrators may read it, also while it runs.
    """
    with open_client(address) as client:
        found = client.output(job, most=1024 * size)
    if json:
        print_answer(found)
        return
    if found.cut:
        print(f"(the last {size} KiB; --size shows more)", file=sys.stderr)
    sys.stdout.write(found.text)


def why(
    job: Annotated[int, typer.Argument(min=1, help="Number of the job.")],
    address: Address = DEFAULT_ADDRESS,
    json: AnswerJson = False,
) -> None:
    """Explain where a job is, and what each site would mean."""
    from rich.table import Table

    with open_client(address) as client:
        answer = client.why(job)
    if json:
        print_answer(answer)
        return
    if answer.waits_for.endswith("has ended"):
        print(f"job {job} is {answer.state}")
        return
    print(f"job {job} is {answer.state}; it waits for {answer.waits_for}")
    print(f"expected start: {answer.expected_start or 'open'}; expected end: {answer.expected_end or 'open'}")
    if not answer.candidates:
        return
    table = Table(title=f"What each site would mean now (policy {answer.policy})")
    for title in ("site", "may be chosen", "because", "GPUs", "run s", "kWh", "USD", "kgCO2", "latest start"):
        table.add_column(title, justify="left" if title in ("site", "because") else "right")
    for one in answer.candidates:
        figures = (one.run_s, one.energy_kwh, one.energy_usd, one.carbon_kg)
        table.add_row(
            one.site, "yes" if one.feasible else "no", one.reason, str(one.gpus),
            *("-" if value is None else f"{value:.4g}" for value in figures), one.latest_start or "-",
        )  # fmt: skip
    print_table(table)


def sites(address: Address = DEFAULT_ADDRESS, json: AnswerJson = False) -> None:
    """Show sites: free GPUs, queues, prices, carbon, health."""
    from rich.table import Table

    with open_client(address) as client:
        service, found = client.service(), client.sites()
    if json:
        print_answer(found)
        return
    table = Table(title=f"{service.now}, policy {service.policy}, {service.open_jobs} open jobs")
    for title in ("site", "executor", "GPUs", "free", "unavailable", "waiting", "USD/MWh", "g/kWh", "state"):
        table.add_column(title, justify="left" if title in ("site", "executor", "state") else "right")
    for one in found:
        state = "drained" if one.drained else "open" if one.reachable else f"does not answer: {one.remark}"
        state += "" if one.dispatch else f"; dispatch off, {one.undispatched} jobs wait for it"
        table.add_row(
            one.name, one.executor, str(one.gpus), str(one.free), str(one.withheld), str(one.waiting),
            *("-" if v is None else f"{v:.1f}" for v in (one.price_usd_per_mwh, one.carbon_g_per_kwh)), state,
        )  # fmt: skip
    print_table(table)
    _print_problems(service)


def jobs(
    state: Annotated[
        str | None,
        typer.Option(
            help="Only jobs of one state: submitted, transit, waiting, starting, running, done, failed, cancelled, "
            "overdue or lost."
        ),
    ] = None,
    site: Annotated[str | None, typer.Option(help="Only jobs that are at one site, or on their way to it.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs submitted with one token, by its name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of jobs, newest first.")] = 20,
    address: Address = DEFAULT_ADDRESS,
    json: AnswerJson = False,
) -> None:
    """List a running service's newest jobs and their states."""
    from rich.markup import escape
    from rich.table import Table

    with open_client(address) as client:
        page = client.jobs(state=state, site=site, owner=owner, limit=limit)
    if json:
        print_answer(page)
        return
    if not page:
        print("no such job" if state or site or owner else "no job yet")
        return
    table = Table("job", "name", "state", "site", "GPUs", "owner", "submitted", "started", "ended", "exit", "remark")
    for one in page:
        marks = " (held)" * one.held + " (being cancelled)" * one.cancelling
        gpus = one.gpus or (f"{one.gpus_min}" if one.gpus_min == one.gpus_max else f"{one.gpus_min}-{one.gpus_max}")
        table.add_row(
            str(one.id), escape(one.name), one.state + marks, one.site or "-", str(gpus), escape(one.owner) or "-",
            one.submitted, one.began or "-", one.ended or "-", "-" if one.exit_code is None else str(one.exit_code),
            escape(one.reason or ""),
        )  # fmt: skip
    print_table(table)
    if len(page) == limit:
        print(f"the newest {limit}; --limit shows more")


def status(address: Address = DEFAULT_ADDRESS, json: AnswerJson = False) -> None:
    """Show whether a service is well, and what it is doing.

    Exits with 1 if the service reports a problem.
    """
    from noonward.live.tenants import said_of

    with open_client(address) as client:
        service, found, tenants = client.service(), client.sites(), client.tenants()
    if json:
        print_answer(service)
    else:
        gpus, free = sum(one.gpus for one in found), sum(one.free for one in found)
        idle = "; it decides only, and runs nothing" if service.mode == "shadow" else ""
        speed = "" if service.speed == 1.0 else f", {service.speed:g} times as fast as real time"
        print(f"noonward {service.version} at {address}: {service.mode}{idle}")
        print(f"time:   {service.now} (running since {service.start}){speed}")
        print(f"policy: {service.policy} ({service.protocol})")
        print(f"jobs:   {service.open_jobs} open")
        print(
            f"sites:  {len(found)}, {free} of {gpus} GPUs free; {sum(one.waiting for one in found)} jobs waiting there"
        )
        for one in tenants:
            average = "" if one.average is None else f", {one.average:.1f} on average"
            most = f" of {one.gpus}" if one.most == one.gpus else f" of {one.gpus}, with loans {one.most}"
            print(f"tenant: {one.name} holds {one.used}{most} GPUs{average}; {one.waiting} jobs waiting")
            for amount in one.budget:
                until = "" if amount.until is None else f" until {amount.until} UTC"
                print(f"        budget{until}: {said_of(amount)}{'; used up' if amount.used_up else ''}")
        if service.late_signal_hours:
            print(f"prices: {service.late_signal_hours} zone-hours are not known yet; forecasts replace them")
        _print_problems(service)
    if service.problems:
        raise typer.Exit(1)


def savings(
    days: Annotated[int, typer.Option(min=1, max=31, help="Days to look back.")] = 7,
    address: Address = DEFAULT_ADDRESS,
    json: AnswerJson = False,
) -> None:
    """Show what a running service saved, day by day."""
    from rich.table import Table

    with open_client(address) as client:
        savings = client.savings(days)
    if json:
        print_answer(savings)
        return
    table = Table(title=f"{savings.policy} against {savings.reference}")
    for title in ("day", "jobs", "USD", "USD saved", "kg CO2", "kg CO2 saved"):
        table.add_column(title, justify="left" if title == "day" else "right")
    for day in savings.days:
        saved = day.reference_usd - day.energy_usd, day.reference_kg - day.carbon_kg
        values = (day.energy_usd, saved[0], day.carbon_kg, saved[1])
        table.add_row(day.day, str(day.jobs), *(f"{value:,.2f}" for value in values))
    print_table(table)
    for what, mean in (("USD", savings.saved_usd_a_day), ("kg CO2", savings.saved_kg_a_day)):
        within = "" if mean.low is None else f" [{mean.low:,.2f}, {mean.high:,.2f}]"
        print(f"saved per day: {mean.mean:,.2f} {what}{within}")
    if savings.left_out:
        print(
            f"{savings.left_out} jobs are left out: they have not ended yet, or would not have ended under the baseline"
        )
    print(f"note: {savings.remark}")


def _print_problems(service: ServiceShown) -> None:
    """Prints what a service says is wrong."""
    for loop, problem in service.problems.items():
        print(f"problem of {loop}: {problem}")
