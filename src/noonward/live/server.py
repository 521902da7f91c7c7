"""Runs the service: store, controller and HTTP server in one process, until it is told to end."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from noonward.errors import MissingExtraError, ScenarioError
from noonward.files import locked_folder
from noonward.live.clock import Clock, SystemClock
from noonward.live.config import LiveConfig
from noonward.live.controller import Controller
from noonward.live.setup import Setup
from noonward.live.store.database import LeadershipLostError
from noonward.live.store.postgres import PostgresDatabase
from noonward.live.store.store import Store
from noonward.live.tokens import any_tokens
from noonward.live.watchdog import tell, watched
from noonward.model.cluster.scenario import Scenario


def serve(
    config: LiveConfig,
    scenario: Scenario,
    *,
    shadow: bool = False,
    clock: Clock | None = None,
    started: object = None,
    waits: Callable[[], None] | None = None,
) -> None:
    """Runs a service until it is told to end (SIGTERM or SIGINT).

    Over a PostgreSQL that another instance leads it stands by: it listens once that one is gone.

    Args:
        config: Configuration.
        scenario: Its scenario.
        shadow: Decide and run nothing.
        clock: Clock; None: the machine's.
        started: Called with the address and the controller once requests are answered.
        waits: Called when it stands by.

    Raises:
        LeadershipLostError: Another instance has taken the lead.
        ScenarioError: Others may read its TLS key, it needs tokens and has none, or the store is of a service that ran
            live, or in shadow, instead.
        FileError: The folder is in use, or the port is taken.
        MissingExtraError: The extra ``live`` is not installed.
    """
    _require_extra()
    from noonward.live.api.connections import listener_at

    _require_own_key(config.tls_key)
    _allow_many_files()
    running: list[Controller] = []
    with (
        locked_folder(config.folder, "noonward serve"),
        watched(lambda: not any(beat.late for each in running for beat in each.heartbeats.values())),
    ):
        store = _store(config, clock or SystemClock(), waits)
        if store is None:
            return
        try:
            setup = Setup.of(config, scenario, store, shadow=shadow)
            _require_tokens(setup, store)
            store.require_mode("shadow" if shadow else "live")
            controller = Controller(setup, store)
            controller.rehearse()
            running.append(controller)
            with listener_at(config.host, config.port) as listener:
                lost = _answer(config, controller, listener, started)
        finally:
            store.close()
        if lost:
            raise LeadershipLostError(
                f"this instance does not lead over {store.database.title} any more; start it again to stand by"
            )


def _require_extra() -> None:
    """Raises MissingExtraError where the extra ``live`` is not installed."""
    try:
        import noonward.live.api.app
        import noonward.live.api.connections  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "uvicorn", "live") from error


def _answer(config: LiveConfig, controller: Controller, listener: socket.socket, started: object) -> bool:
    """Runs the loops and answers requests until the service is told to end; returns whether it has lost the lead."""
    from noonward.live.api.app import make_app
    from noonward.live.api.connections import http_server

    server = http_server(make_app(controller), config.tls_certificate, config.tls_key)
    lost = threading.Event()

    def end() -> None:
        lost.set()
        server.should_exit = True

    controller.store.lost = end
    controller.run()
    try:
        with _answers_first():
            if callable(started):
                scheme = "http" if config.tls_certificate is None else "https"
                started(f"{scheme}://{config.host}:{listener.getsockname()[1]}", controller)
            tell(f"READY=1\nSTATUS=listening at {config.host}:{listener.getsockname()[1]}")
            server.run(sockets=[listener])
    finally:
        controller.stop()
    return lost.is_set()


@contextlib.contextmanager
def _answers_first() -> Iterator[None]:
    """Keeps waits of requests short while they are answered.

    Garbage collection passes over what a service has made to start: a look at all of it takes 0.2 s.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _store(config: LiveConfig, clock: Clock, waits: Callable[[], None] | None) -> Store | None:
    """Returns the store, in PostgreSQL once this instance leads; None: it was told to end before."""
    if config.database is None:
        return Store(config.folder, clock)
    database = PostgresDatabase(config.database)
    while True:
        with contextlib.suppress(LeadershipLostError):
            return Store(database, clock)
        if waits is not None:
            waits()
        tell("READY=1\nSTATUS=standing by: another instance leads")
        with _told_to_end() as stop:
            if not database.wait_to_lead(stop):
                return None


@contextlib.contextmanager
def _told_to_end() -> Iterator[threading.Event]:
    """Yields an event that SIGTERM and SIGINT set meanwhile."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _allow_many_files() -> None:
    """Lets this process open as many files, connections among them, as the machine allows it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _require_own_key(key: Path | None) -> None:
    """Raises ScenarioError where other users may read the key of TLS."""
    if key is not None and key.is_file() and key.stat().st_mode & 0o077:
        raise ScenarioError(f"tls_key {key} can be read by other users of the machine; chmod 600 it")


def _require_tokens(setup: Setup, store: Store) -> None:
    """Raises ScenarioError where a service needs tokens and has none."""
    if setup.needs_tokens and not any_tokens(store):
        config = setup.config
        where = f"--folder {config.folder}" if config.database is None else f"--database {config.database}"
        raise ScenarioError(
            f"the service would run without tokens, while {setup.needs_tokens}; make one first ('noonward live token "
            f"add NAME --scope admin {where}'), or listen at 127.0.0.1 and say without_tokens: true"
        )
