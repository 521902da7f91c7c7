"""The HTTP server: a connection that sends no whole request in time is closed, and so are endless headers."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from noonward.errors import FileError

IDLE_S: Final = 30.0
"""How long a connection may take to send the head of a request, and how long one without a request is kept, s."""
MOST_HEAD_BYTES: Final = 64 * 2**10
"""Largest head of a request: method, path and headers."""
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)  # fmt: skip


class Connection(HttpToolsProtocol):
    """A connection of uvicorn that does not wait for ever, nor reads headers without end."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head_bytes = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no longer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on; of a head that is not whole, only so long and so much."""
        if self._heads_next():
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._heads_next():
            self._head_bytes = 0
            self._stop_waiting()
        elif self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._patience is None:
            self._wait()

    def _heads_next(self) -> bool:
        """Returns whether no request is being answered, so that a head comes next."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._patience = self.loop.call_later(IDLE_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._patience = None
        if self._heads_next():
            self.transport.close()


def http_server(app: ASGIApp, certificate: Path | None = None, key: Path | None = None) -> uvicorn.Server:
    """Returns a server of an application, which logs nothing of its own.

    Args:
        app: The application.
        certificate: File of a certificate for TLS; None: plain HTTP.
        key: File of its key.
    """
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            http=Connection,
            timeout_keep_alive=int(IDLE_S),
            timeout_graceful_shutdown=5,
            ssl_certfile=None if certificate is None else str(certificate),
            ssl_keyfile=None if key is None else str(key),
            server_header=False,
        )
    )


def listener_at(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address; connections wait until the server takes them.

    Raises:
        FileError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise FileError(f"the service cannot listen at {host}:{port}: {error}; choose another port") from error
    return listener
