"""How a thing that many processes read travels: its arrays apart, so that processes of a node share their bytes."""

from __future__ import annotations

import pickle
from typing import Any

Parts = tuple[bytes, list[Any]]
"""A pickled thing, and the bytes of its arrays."""


def apart(thing: Any) -> Parts:
    """Returns a thing with its arrays apart; nothing of them is copied."""
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(thing, protocol=5, buffer_callback=buffers.append), buffers


def joined(parts: Parts) -> Any:
    """Returns the thing whose arrays lie in the given bytes."""
    content, buffers = parts
    return pickle.loads(content, buffers=buffers)
