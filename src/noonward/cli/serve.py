"""``noonward serve``: the live service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from noonward.live.controller import Controller


def serve(
    config: Annotated[Path | None, typer.Argument(help="Configuration (docs/live.md); none with --demo.")] = None,
    shadow: Annotated[bool, typer.Option(help="Decide, but run nothing: jobs end as the model expects.")] = False,
    demo: Annotated[
        bool, typer.Option(help="Three local sites, packaged signals and jobs, time 600 times faster.")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="Folder of the store; the configuration's by default.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0: any that is free.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy, if the service has not stored one.")] = None,
    history: Annotated[
        Path | None, typer.Option(help="Table or log of past jobs; planning policies sample future jobs from it.")
    ] = None,
) -> None:
    """Run the live service.

    It takes jobs, decides where and when they run, and hands them to clusters.
    """
    from noonward.errors import MissingExtraError, ScenarioError

    if demo == (config is not None):
        raise ScenarioError("give a configuration file, or --demo; docs/live.md shows both")
    try:
        from noonward.live.server import serve as run
    except ImportError as error:
        raise MissingExtraError(error.name or "msgspec", "live") from error
    if config is None:
        _demo(folder or Path("noonward-demo"), 8470 if port is None else port, policy)
        return
    from noonward.live.config import load_config
    from noonward.live.logs import configure_logs

    loaded, scenario = load_config(config)
    given = {"folder": folder, "port": port, "policy": policy, "history": history}
    loaded = loaded.model_copy(update={name: value for name, value in given.items() if value is not None})
    configure_logs(loaded.log.format, loaded.log.level, requests=loaded.log.requests)
    print(f"store: {loaded.folder if loaded.database is None else 'PostgreSQL'}")

    def started(address: str, controller: Controller) -> None:
        how = "shadow: nothing is run" if shadow else "live"
        print(f"listening at {address} ({how}; policy {controller.policy}); Ctrl-C ends it", flush=True)

    def waits() -> None:
        print("standing by: another instance leads", flush=True)

    run(loaded, scenario, shadow=shadow, started=started, waits=waits)


def _demo(folder: Path, port: int, policy: str | None) -> None:
    from datetime import timedelta

    from noonward.live import demo
    from noonward.live.clock import SystemClock
    from noonward.live.server import serve as run
    from noonward.live.store.sqlite import NAME, last_time

    config, scenario = demo.demo_config(folder, port, policy)
    # A demo that is started again carries on at the time it had reached.
    last = last_time(folder) if (folder / NAME).is_file() else None
    clock = SystemClock(demo.SPEED, None if last is None else last + timedelta(seconds=1))
    submitters: list[demo.Submitter] = []

    def started(address: str, controller: Controller) -> None:
        submitters.append(demo.Submitter(controller, demo.SPEED))
        print(f"demo: three sites, a day in {86400 / demo.SPEED / 60:.1f} minutes; policy {controller.policy}")
        print(f"open {address}   (store in {folder}; Ctrl-C ends it)", flush=True)

    try:
        run(config, scenario, clock=clock, started=started)
    finally:
        for each in submitters:
            each.stop()
