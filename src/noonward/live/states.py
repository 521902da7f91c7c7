"""States of schedulers as bytes: MessagePack, arrays with their type and shape; data alone, never code."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from noonward.decision.scheduler import State
from noonward.errors import NoonwardError

STATE: Final = "scheduler."
STATES: Final = f"name LIKE '{STATE}%'"
"""Names of the table ``meta`` under which the parts of the scheduler's state are."""
_ARRAY: Final = 1


def to_bytes(state: State) -> bytes:
    """Returns a state as bytes.

    Example:
        >>> from_bytes(to_bytes({"a": np.arange(3), "b": [1.5, None]}))
        {'a': array([0, 1, 2]), 'b': [1.5, None]}
    """
    return msgspec.msgpack.encode(state, enc_hook=_encode)


class UnreadableStateError(NoonwardError):
    """A policy cannot read the state that it, or an earlier version of it, has stored."""


def from_bytes(content: bytes) -> State:
    """Returns a state from bytes."""
    state: State = msgspec.msgpack.decode(content, ext_hook=_decode)
    return state


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        described = [array.dtype.descr if array.dtype.names else array.dtype.str, value.shape, array.tobytes()]
        return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode(described))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a scheduler's state holds a {type(value).__name__}; it may hold arrays, numbers and strings")


def _decode(code: int, content: memoryview) -> Any:
    kind, shape, data = msgspec.msgpack.decode(content)
    described = kind if isinstance(kind, str) else [tuple(field) for field in kind]
    return np.frombuffer(data, dtype=np.dtype(described)).reshape(shape).copy()
