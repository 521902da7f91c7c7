"""Tells systemd that the service is ready, and every so often that it is well."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

_log: Final = logging.getLogger("noonward.live")
PINGS: Final = 3
"""How often it is told within the time that systemd waits."""


def tell(message: str) -> bool:
    """Sends a message to the systemd that started this process, as ``sd_notify(3)``; returns whether it was sent.

    Args:
        message: For example ``READY=1``.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            # A name that begins with @ is an abstract one.
            notify.connect("\0" + address[1:] if address.startswith("@") else address)
            notify.sendall(message.encode())
    except OSError as error:
        _log.warning("could not notify systemd of %r: %s", message, error)
        return False
    return True


@contextlib.contextmanager
def watched(is_well: Callable[[], bool]) -> Iterator[None]:
    """Tells systemd meanwhile that the service is well, as long as it is (``WatchdogSec`` of the unit).

    Args:
        is_well: Whether it is.
    """
    every_s = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6 / PINGS
    stop = threading.Event()

    def ping() -> None:
        while not stop.wait(every_s):
            if is_well():
                tell("WATCHDOG=1")

    thread = threading.Thread(target=ping, name="watchdog", daemon=True)
    if every_s > 0:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread.is_alive():
            thread.join()
