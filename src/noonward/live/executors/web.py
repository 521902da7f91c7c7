"""Calls to a cluster's HTTP interface: JSON in, JSON out, every failure a ClusterError."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from noonward.errors import FileError, MissingExtraError
from noonward.live.executors.protocol import ClusterError

TIMEOUT_S: Final = 30.0
"""How long an answer may take, s."""


class ClusterWeb:
    """A cluster's HTTP interface.

    Args:
        title: What it is, for messages.
        url: Its address.
        token_file: File with a bearer token, read again for every call, since tokens are renewed; None: none.
        authorities: PEM file of the certificate authorities; None: those of the machine.
        socket: Path of a Unix socket; None: the address is dialled.
        headers: Further headers of every call.
        token_header: Header that takes the token alone; None: ``Authorization`` takes it as a bearer token.

    Raises:
        MissingExtraError: The extra ``live`` is not installed.
        FileError: The certificate authorities cannot be read.
    """

    def __init__(
        self,
        title: str,
        url: str,
        *,
        token_file: Path | None = None,
        authorities: Path | None = None,
        socket: Path | None = None,
        headers: Mapping[str, str] | None = None,
        token_header: str | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError(error.name or "httpx", "live") from error
        try:
            verify = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
        except OSError as error:
            raise FileError(f"the certificate authorities in {authorities} cannot be read: {error}") from error
        self._httpx, self.title, self._token_file, self._token_header = httpx, title, token_file, token_header
        transport = httpx.HTTPTransport(verify=verify, uds=None if socket is None else str(socket))
        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S, transport=transport, headers=dict(headers or {}))

    def call(
        self,
        method: str,
        path: str,
        content: object = None,
        *,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
        known: tuple[int, ...] = (),
        more: Mapping[str, str] | None = None,
        plain: bool = False,
    ) -> tuple[int, Any]:
        """Returns status and JSON of an answer.

        Args:
            method: HTTP method.
            path: Path after the address.
            content: Sent as JSON; None: nothing is.
            query: Parameters.
            kind: Content type.
            known: Statuses of failures that the caller knows what to do with.
            more: Further headers, which replace others of the same names.
            plain: Whether a good answer is bytes, not JSON.

        Raises:
            ClusterError: There is no answer, it is another failure, or it is not JSON.
        """
        headers = {} if content is None else {"Content-Type": kind}
        try:
            if self._token_file is not None:
                token = self._token_file.read_text(encoding="utf-8").strip()
                headers |= {self._token_header: token} if self._token_header else {"Authorization": f"Bearer {token}"}
            headers |= dict(more or {})
            body = None if content is None else self._encoded(content)
            reply = self._client.request(method, path, content=body, params=dict(query or {}), headers=headers)
            if plain and reply.is_success:
                return reply.status_code, reply.content
            found = reply.json() if reply.content else None
        except (self._httpx.HTTPError, OSError) as error:
            raise ClusterError(f"{self.title} did not answer: {error or type(error).__name__}") from error
        except ValueError as error:
            if reply.status_code in known:
                return reply.status_code, None
            raise ClusterError(
                f"{self.title} answered {method} {path} with status {reply.status_code} and no JSON: {reply.text[:200]}"
            ) from error
        if not reply.is_success and reply.status_code not in known:
            said = found.get("message") if isinstance(found, dict) else None
            raise ClusterError(
                f"{self.title} answered {method} {path} with status {reply.status_code}: {said or reply.text[:200]}"
            )
        return reply.status_code, found

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    @staticmethod
    def _encoded(content: object) -> bytes:
        import msgspec

        return msgspec.json.encode(content)
