"""Where arrays lie: records of addresses and lengths, from which compiled functions read tuples of arrays.

A compiled function that is called through a pointer is handed every address, length and stride of its arrays, some
hundred numbers a call. One record of addresses takes their place.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
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


def note_place(parts: Sequence[Part], arrays: Mapping[str, NDArray[Any]], place: NDArray[np.void]) -> None:
    """Notes where arrays lie; they must stay alive as long as the record is used.

    Args:
        parts: Their layout.
        arrays: Arrays by name.
        place: Record of ``place_dtype(parts)``; written.
    """
    lengths = dict(COUNTED)
    for name, _, axes, *_ in parts:
        array = arrays[name]
        if not (array.flags.c_contiguous and array.flags.aligned):
            raise AssertionError(f"array {name} is not contiguous")
        place[name] = array.__array_interface__["data"][0]
        for axis, length in zip(axes, array.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise AssertionError(f"array {name} has {length} {axis}, others have {lengths[axis]}")
    for axis in lengths.keys() - COUNTED.keys():
        place[axis] = lengths[axis]


class Place:
    """A record of where arrays lie, kept up to date as some of them are replaced; a copy of it has noted nothing.

    Args:
        parts: Their layout.

    Attributes:
        address: Address of the record; good as long as this object lives.
        of: What the arrays are those of, where its user says so.
    """

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        self._arrays: Sequence[NDArray[Any] | None] = (None,) * len(parts)
        self._place_1 = np.zeros(1, place_dtype(parts))
        self.address: int = self._place_1.__array_interface__["data"][0]
        self.of: object = None

    def __reduce__(self) -> tuple[type[Place], tuple[tuple[Part, ...]]]:
        """Copies without what was noted: a copy's arrays lie elsewhere."""
        return Place, (self._parts,)

    def note(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Notes where arrays lie, and keeps them alive.

        Args:
            arrays: One array per part.
        """
        given = list(zip(self._parts, arrays, self._arrays, strict=True))
        new = [one for one in given if one[1] is not one[2]]
        if any(old is None or array.shape != old.shape for _, array, old in new):
            axes = {axis for part, *_ in new for axis in part.axes}  # arrays that share one must agree
            new = [one for one in given if not axes.isdisjoint(one[0].axes)]
        note_place([part for part, *_ in new], {part.name: array for part, array, _ in new}, self._place_1[0])
        self._arrays = arrays


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
