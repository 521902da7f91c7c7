"""``noonward live``: look after a service: store, tokens, sites, policy, jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noonward.cli.live_client import DEFAULT_ADDRESS, Address, AnswerJson, open_client, print_answer
from noonward.cli.live_events import event, events

if TYPE_CHECKING:
    from noonward.live.store.store import Store

app = typer.Typer(help="Operate a live service: jobs, sites, policy, store, tokens.", no_args_is_help=True)
tokens = typer.Typer(help="Create, list, rotate and revoke tokens.", no_args_is_help=True)
app.add_typer(tokens, name="token")
app.command()(event)
app.command()(events)
Folder = Annotated[Path, typer.Option(help="Folder that 'noonward serve' works in.")]
JobNumber = Annotated[int, typer.Argument(min=1, help="Number of the job.")]
Database = Annotated[
    str | None, typer.Option(help="PostgreSQL that holds the store (postgresql://...), instead of a folder.")
]
SiteName = Annotated[str, typer.Argument(help="Name of the site.")]


@app.command()
def backup(to: Annotated[Path, typer.Argument(help="File to write.")], folder: Folder = Path("noonward-live")) -> None:
    """Back the store up to a file, even while it is in use."""
    from noonward.live.store import sqlite

    sqlite.backup(folder, to)
    print(f"wrote {to} ({to.stat().st_size / 2**20:.1f} MiB)")


@app.command()
def restore(
    copy: Annotated[Path, typer.Argument(help="File that 'live backup' wrote.")], folder: Folder = Path("noonward-live")
) -> None:
    """Put a backup into a folder that holds no store."""
    from noonward.live.service_name import rename_restored
    from noonward.live.store import sqlite

    sqlite.restore(copy, folder)
    with _store(folder) as store:
        last = rename_restored(store)
    print(
        f"restored into {folder}; jobs up to {last} are looked up at their clusters before they are handed over; what "
        "was submitted after the backup is not known"
    )


@app.command()
def vacuum(folder: Folder = Path("noonward-live")) -> None:
    """Return unused space of the store to the disk."""
    from noonward.live.store import sqlite

    before, after = sqlite.vacuum(folder)
    print(f"{before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB after")


@app.command()
def replay(
    config: Annotated[Path, typer.Argument(help="Configuration of the service (docs/live.md).")],
    folder: Annotated[Path | None, typer.Option(help="Folder of the store; the configuration's by default.")] = None,
) -> None:
    """Repeat recorded decisions and compare.

    Fresh schedulers are asked about what the service was told.
    """
    from datetime import timedelta

    from noonward.live.config import load_config
    from noonward.live.journal import replay_journal
    from noonward.live.setup import Setup

    loaded, scenario = load_config(config)
    loaded = loaded if folder is None else loaded.model_copy(update={"folder": folder})
    with _store(loaded.folder, loaded.database) as store:
        replayed = replay_journal(Setup.of(loaded, scenario, store, shadow=True), store)
    since = f"{store.start + timedelta(seconds=replayed.since_s):%Y-%m-%d %H:%M} UTC"
    print(f"{replayed.compared:,} decisions of {', '.join(replayed.policies)} since {since} came out as recorded")
    if not replayed.same:
        for what, note in (("recorded", replayed.recorded), ("replayed", replayed.replayed)):
            said = "nothing" if note is None else f"job {note.job}, {note.kind} at {note.at_s:.3f} s: {note.data}"
            print(f"the next one differs; {what}: {said}")


@app.command()
def drain(site: SiteName, address: Address = DEFAULT_ADDRESS) -> None:
    """Stop starting jobs at a site; running jobs continue."""
    with open_client(address) as client:
        print(f"{client.drain(site).name} is drained")


@app.command()
def undrain(site: SiteName, address: Address = DEFAULT_ADDRESS) -> None:
    """Reopen a drained site."""
    with open_client(address) as client:
        print(f"{client.drain(site, False).name} is open")


@app.command()
def dispatch(
    site: SiteName,
    on: Annotated[bool, typer.Option("--on/--off", help="Hand jobs to the site's cluster, or let them wait.")],
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Hand jobs to a site's cluster, or stop doing so.

    The policy decides as before.
    """
    with open_client(address) as client:
        answer = client.dispatch(site, on)
    print(f"dispatch to {answer.name} is {'on' if answer.dispatch else 'off'}")


@app.command()
def policy(
    name: Annotated[str, typer.Argument(help="Policy that decides from now on, e.g. local-fcfs to roll back.")],
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Switch to another policy; jobs keep their places."""
    with open_client(address) as client:
        print(f"policy {client.use_policy(name).policy} decides")


@app.command()
def audit(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of changes, newest first.")] = 20,
    address: Address = DEFAULT_ADDRESS,
    json: AnswerJson = False,
) -> None:
    """List who changed sites, policy, others' jobs and grid events."""
    with open_client(address) as client:
        found = client.audit(limit)
    if json:
        print_answer(found)
        return
    for one in found:
        print(f"{one.at}  {one.who or '-'}  {one.action} {one.detail}".rstrip())
    if not found:
        print("nothing was changed yet")


@app.command()
def cancel(job: JobNumber, address: Address = DEFAULT_ADDRESS) -> None:
    """Cancel a job, at its cluster if it runs there."""
    with open_client(address) as client:
        answer = client.cancel(job)
    print(f"job {job} is {'being cancelled' if answer.cancelling and answer.state != 'cancelled' else answer.state}")


@app.command()
def hold(job: JobNumber, address: Address = DEFAULT_ADDRESS) -> None:
    """Hold a waiting job: the policy is not asked about it."""
    with open_client(address) as client:
        client.hold(job)
    print(f"job {job} is held")


@app.command()
def release(job: JobNumber, address: Address = DEFAULT_ADDRESS) -> None:
    """Release a held job."""
    with open_client(address) as client:
        client.release(job)
    print(f"job {job} is let go")


@app.command()
def pin(job: JobNumber, site: SiteName, address: Address = DEFAULT_ADDRESS) -> None:
    """Make a waiting job run at one site."""
    with open_client(address) as client:
        client.steer(job, site=site)
    print(f"job {job} runs at {site} or not at all")


@app.command()
def veto(
    job: JobNumber,
    sites: Annotated[list[str], typer.Argument(metavar="SITE", help="Sites it must not run at.")],
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Keep a waiting job from sites."""
    with open_client(address) as client:
        client.steer(job, not_sites=sites)
    print(f"job {job} does not run at {', '.join(sites)}")


@tokens.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the holder.")],
    scope: Annotated[str, typer.Option(help="read, submit or admin.")] = "read",
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires; never by default.")] = None,
    folder: Folder = Path("noonward-live"),
    database: Database = None,
) -> None:
    """Create a token.

    It is shown only once; the store keeps its hash.
    """
    from noonward.live.tokens import make_token

    new = database is None and not folder.exists()
    with _store(folder, database, make=True) as store:
        token = make_token(store, name, scope, days)
    if database is None:
        typer.echo(f"token of {name} ({scope}), in the {'new ' if new else ''}store {folder}:", err=True)
    print(token)


@tokens.command()
def rotate(
    name: Annotated[str, typer.Argument(help="Name of the holder.")],
    days: Annotated[int | None, typer.Option(min=1, help="Days until the new one expires.")] = None,
    folder: Folder = Path("noonward-live"),
    database: Database = None,
) -> None:
    """Replace a token by a new one of the same scope."""
    from noonward.live.tokens import make_token

    with _store(folder, database) as store:
        print(make_token(store, name, "read", days, replace=True))


@tokens.command()
def revoke(
    name: Annotated[str, typer.Argument(help="Name of the holder.")],
    folder: Folder = Path("noonward-live"),
    database: Database = None,
) -> None:
    """Revoke a token."""
    from noonward.live.tokens import revoke_token

    with _store(folder, database) as store:
        revoke_token(store, name)
    print(f"the token of {name} is void")


@tokens.command(name="list")
def list_tokens(
    folder: Folder = Path("noonward-live"),
    database: Database = None,
    json: Annotated[bool, typer.Option("--json", help="Print the list as one JSON array.")] = False,
) -> None:
    """List the holders of tokens."""
    with _store(folder, database) as store:
        rows = [dict(row) for row in store.read("SELECT name, scope, made_at, expires_at FROM tokens ORDER BY name")]
    if json:
        from json import dumps

        print(dumps(rows, indent=1))
    else:
        for row in rows:
            print(f"{row['name']}  {row['scope']}  made {row['made_at'][:10]}  expires {row['expires_at'] or 'never'}")


@contextmanager
def _store(folder: Path, database: str | None = None, make: bool = False) -> Iterator[Store]:
    """Opens a store beside a service that may use it."""
    from noonward.errors import MissingExtraError
    from noonward.live.clock import SystemClock
    from noonward.live.store.postgres import PostgresDatabase
    from noonward.live.store.sqlite import require_store
    from noonward.live.store.store import Store

    if not make and database is None:
        require_store(folder)
    try:
        where = folder if database is None else PostgresDatabase(database, leads=False)
        store = Store(where, SystemClock())
    except ImportError as error:
        raise MissingExtraError(error.name or "msgspec", "live") from error
    try:
        yield store
    finally:
        store.close()
