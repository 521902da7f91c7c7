"""Where arrays lie: records of addresses and lengths, from which compiled functions read tuples of arrays.

A compiled function that is called through a pointer is handed every address, length and stride of its arrays, some
hundred numbers a call. One record of addresses takes their place.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from noonward.decision.cluster.layout import COUNTED, Part

_TUPLE: Any = types.BaseTuple
_NAMED: Any = types.BaseNamedTuple
"""numba types of all (named) tuples, of equal arrays or not; numba states none of their fields to a type checker."""


@functools.cache
def place_dtype(parts: tuple[Part, ...]) -> np.dtype[np.void]:
    """Returns the type of a record of addresses: one of every array, each followed by the lengths of its new axes.

    Records whose parts begin alike do so, too: a view is read in the same way from every record that begins with one.
    """
    names: list[str] = []
    known = set(COUNTED)
    for part in parts:
        names += [part.name, *(axis for axis in dict.fromkeys(part.axes) if axis not in known)]
        known |= set(part.axes)
    return np.dtype([(name, "i8") for name in names])


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


class Placed(types.Type):
    """numba type of arrays that lie where a record says: in compiled code a named tuple, but handed over as an address.

    Args:
        name: Name of the named tuple.
        fields: Of each name the numba type, and of an array the offset of its address and, of each axis, the length or
            (offset of the length,), bytes; None otherwise.
    """

    def __init__(self, name: str, fields: dict[str, tuple[Any, tuple[Any, ...] | None]]) -> None:
        self.fields = fields
        super().__init__(f"{name} at {hashlib.sha256(repr(fields).encode()).hexdigest()[:16]}")


register_model(Placed)(models.OpaqueModel)


@infer_getattr
class _PlacedFields(AttributeTemplate):
    key = Placed

    def generic_resolve(self, value: Any, attr: str) -> Any:  # type: ignore[override]  # its own returns nothing
        """Returns the numba type of a field."""
        return value.fields[attr][0] if attr in value.fields else None


def _field(context: Any, builder: Any, placed: Placed, record: Any, name: str) -> Any:
    """Returns a field of arrays that lie where a record says."""
    return _read(context, builder, record, *placed.fields[name])


lower_getattr_generic(Placed)(_field)


def _read(context: Any, builder: Any, record: Any, kind: Any, where: tuple[Any, ...] | None) -> Any:
    """Returns an array, or the record for a tuple; the record holds still while compiled code runs."""
    if where is None:
        return record

    def number(offset: int) -> Any:
        read = builder.load(cgutils.pointer_add(builder, record, offset, cgutils.intp_t.as_pointer()))
        read.set_metadata("invariant.load", builder.module.add_metadata([]))
        return read

    data, axes = where
    lengths = [number(*axis) if isinstance(axis, tuple) else cgutils.intp_t(axis) for axis in axes]
    return _array_at(context, builder, kind, number(data), lengths)


def _placed(kind: Any, offsets: dict[str, int], left: Iterator[Part]) -> tuple[Any, tuple[Any, ...] | None]:
    """Returns the type of a field that is read from a record, and where it lies (see ``Placed``)."""
    if isinstance(kind, _NAMED):
        fields = {name: _placed(of, offsets, left) for name, of in zip(kind.fields, kind.types, strict=True)}
        return Placed(kind.instance_class.__name__, fields), None
    part = next(left)
    axes = tuple(COUNTED[axis] if axis in COUNTED else (offsets[axis],) for axis in part.axes)
    return kind, (offsets[part.name], axes)


def reader(kind: Any, parts: tuple[Part, ...]) -> Any:
    """Returns a function for compiled code: (address of a record of ``place_dtype(parts)``) -> tuple of the arrays.

    Args:
        kind: numba type of a named tuple, or of a tuple; either may hold arrays and named tuples.
        parts: Layout of their arrays, in order.
    """
    offsets = {name: field[1] for name, field in (place_dtype(parts).fields or {}).items()}
    left, named = iter(parts), isinstance(kind, _NAMED)
    members = [_placed(each, offsets, left) for each in ([kind] if named else kind.types)]
    made = members[0][0] if named else types.Tuple([of for of, _ in members])

    def typed(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            record = builder.inttoptr(args[0], cgutils.voidptr_t)
            values = [_read(context, builder, record, *each) for each in members]
            return values[0] if named else context.make_tuple(builder, made, values)

        return made(types.int64), generate

    function: Any = intrinsic(typed)
    return function


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
                if isinstance(of, _TUPLE):
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
