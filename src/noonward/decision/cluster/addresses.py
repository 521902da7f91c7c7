"""Where arrays lie: records of addresses and lengths, from which compiled functions read tuples of arrays.

A compiled function that is called through a pointer is handed every address, length and stride of its arrays, some
hundred numbers a call. One record of addresses takes their place.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from noonward.decision.cluster.layout import COUNTED, Part


@functools.cache
def place_dtype(parts: tuple[Part, ...]) -> np.dtype[np.void]:
    """Returns the type of a record of addresses: one of every array, and the lengths of the axes they share."""
    axes = sorted({axis for part in parts for axis in part.axes} - set(COUNTED))
    return np.dtype([(name, "i8") for name in (*(part.name for part in parts), *axes)])


class Place:
    """A record of where arrays lie, written again as some of them are replaced; a copy of it has noted nothing.

    Args:
        parts: Their layout.
        write: Compiled function that calls the ``writer`` of these parts: (arrays, address) -> int.

    Attributes:
        address: Address of the record; good as long as this object lives.
    """

    def __init__(self, parts: tuple[Part, ...], write: Callable[[Any, int], int]) -> None:
        self._parts, self._write = parts, write
        self._arrays: Any = None
        self._place_1 = np.zeros(1, place_dtype(parts))
        self.address: int = self._place_1.ctypes.data

    def __deepcopy__(self, memo: dict[int, Any]) -> Place:
        """Copies without what was noted: a copy's arrays lie elsewhere."""
        return Place(self._parts, self._write)

    def holds(self, arrays: Any) -> bool:
        """Returns whether these very tuples and arrays were noted last."""
        noted = self._arrays
        return noted is arrays or (noted is not None and all(map(operator.is_, noted, arrays)))

    def note(self, arrays: Any) -> None:
        """Notes where arrays lie, and keeps them alive.

        Args:
            arrays: Tuple of the type that the writer was made for; C-contiguous.

        Raises:
            AssertionError: Two arrays disagree about the length of an axis that they share.
        """
        self._arrays = arrays
        if self._write(arrays, self.address):
            raise AssertionError(disagreement(self._parts, arrays))


def disagreement(parts: Sequence[Part], arrays: Any) -> str:
    """Returns which array has another length than others on an axis that they share; arrays as ``Place.note`` takes."""
    lengths = dict(COUNTED)
    for part, array in zip(parts, _flat(arrays), strict=True):
        for axis, length in zip(part.axes, array.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                return f"array {part.name} has {length} {axis}, others have {lengths[axis]}"
    return "arrays agree"


def _flat(arrays: Any) -> Iterator[NDArray[Any]]:
    """Yields the arrays of nested tuples."""
    for each in arrays:
        if isinstance(each, tuple):
            yield from _flat(each)
        else:
            yield each


def _array_at(context: Any, builder: Any, array: Any, address: Any, lengths: list[Any]) -> Any:
    """Returns the contiguous array of a numba type and some lengths that lies at an address."""
    out = make_array(array)(context, builder)
    itemsize = cgutils.intp_t(context.get_abi_sizeof(context.get_data_type(array.dtype)))
    strides = [itemsize]
    for length in reversed(lengths[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    data = builder.inttoptr(address, context.get_data_type(array.dtype).as_pointer())
    populate_array(out, data=data, shape=lengths, strides=strides, itemsize=itemsize, meminfo=None)
    return out._getvalue()


def reader(kind: Any, parts: tuple[Part, ...]) -> Any:
    """Returns a function for compiled code: (address of a record of ``place_dtype(parts)``) -> tuple of the arrays.

    Args:
        kind: numba type of the tuple; it may hold tuples.
        parts: Layout of its arrays, in order.
    """
    offsets = {name: field[1] for name, field in (place_dtype(parts).fields or {}).items()}

    def typed(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            first = builder.inttoptr(args[0], cgutils.voidptr_t)

            def number(name: str) -> Any:
                at = cgutils.pointer_add(builder, first, offsets[name], cgutils.intp_t.as_pointer())
                return builder.load(at)

            def value(of: Any, left: Iterator[Part]) -> Any:
                if isinstance(of, types.Tuple | types.NamedTuple):
                    return context.make_tuple(builder, of, [value(each, left) for each in of.types])
                part = next(left)
                lengths = [cgutils.intp_t(COUNTED[axis]) if axis in COUNTED else number(axis) for axis in part.axes]
                return _array_at(context, builder, of, number(part.name), lengths)

            return value(kind, iter(parts))

        return kind(types.int64), generate

    made: Any = intrinsic(typed)
    return made


def writer(kind: Any, parts: tuple[Part, ...]) -> Any:
    """Returns a function for compiled code that writes a record for ``reader``: (arrays, address) -> 1 or 0.

    It returns 1 where two arrays disagree about the length of an axis that they share, otherwise 0.

    Args:
        kind: numba type of the tuple of arrays; it may hold tuples.
        parts: Layout of its arrays, in order.
    """
    offsets = {name: field[1] for name, field in (place_dtype(parts).fields or {}).items()}

    def typed(context: Any, arrays: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            first, left = builder.inttoptr(args[1], cgutils.voidptr_t), iter(parts)
            lengths = {axis: cgutils.intp_t(length) for axis, length in COUNTED.items()}
            wrong = cgutils.false_bit

            def put(name: str, number: Any) -> None:
                at = cgutils.pointer_add(builder, first, offsets[name], cgutils.intp_t.as_pointer())
                builder.store(number, at)

            def write(of: Any, value: Any) -> None:
                nonlocal wrong
                if isinstance(of, types.Tuple | types.NamedTuple):
                    for i, each in enumerate(of.types):
                        write(each, builder.extract_value(value, i))
                    return
                part, array = next(left), make_array(of)(context, builder, value)
                put(part.name, builder.ptrtoint(array.data, cgutils.intp_t))
                for axis, length in zip(part.axes, cgutils.unpack_tuple(builder, array.shape), strict=True):
                    if axis not in lengths:
                        put(axis, length)
                    differs = builder.icmp_signed("!=", lengths.setdefault(axis, length), length)
                    wrong = builder.or_(wrong, differs)

            write(kind, args[0])
            return builder.zext(wrong, cgutils.intp_t)

        return types.int64(arrays, types.int64), generate

    made: Any = intrinsic(typed)
    return made
