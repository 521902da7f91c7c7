"""Reads and comparisons that let a compiled loop handle several elements at once, with the same bits as one by one.

numba's own indexing looks for negative indices, and LLVM does not vectorise the maximum of floating-point numbers,
since NaN and the sign of zero would have to be kept. A loop along a row that reads with ``item`` and keeps the largest
``positive_order`` is vectorised.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


def _item(context: Any, array: Any, row: Any, column: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix = make_array(array)(context, builder, args[0])
        shape, strides = (cgutils.unpack_tuple(builder, each) for each in (matrix.shape, matrix.strides))
        at = cgutils.get_item_pointer2(
            context, builder, matrix.data, shape, strides, array.layout, args[1:], wraparound=False
        )
        return builder.load(at)

    return array.dtype(array, types.intp, types.intp), generate


def _positive_order(context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], cgutils.intp_t)

    return types.int64(types.float64), generate


item: Any = intrinsic(_item)
"""In compiled code, (matrix, row, column) -> element; both indices must be within the matrix."""
positive_order: Any = intrinsic(_positive_order)
"""In compiled code, (number) -> whole number that orders positive numbers as they are; those below 0 have less."""
