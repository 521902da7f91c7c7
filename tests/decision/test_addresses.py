"""Records of addresses: compiled functions read the arrays that were noted last."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import typeof, types

from noonward.compiled import kernel
from noonward.decision.cluster.addresses import Place, reader, writer
from noonward.decision.cluster.layout import Part

PARTS = (Part("a_J", np.float64, ("jobs",)), Part("b_J", np.float64, ("jobs",)), Part("c_S", np.int64, ("sites",)))


class Rest(NamedTuple):
    """The second and third array."""

    b_J: Any
    c_S: Any


KIND = types.Tuple([typeof(np.zeros(0)), typeof(Rest(np.zeros(0), np.zeros(0, np.int64)))])
given: Any = reader(KIND, PARTS)
written: Any = writer(KIND, PARTS)


@kernel(types.int64(KIND, types.int64))
def note(arrays, address):
    """Notes a, b and c."""
    return written(arrays, address)


@kernel()
def total(address):
    """Returns the sum of all noted entries, a, b and c."""
    a_J, rest = given(address)
    return a_J.sum(), rest.b_J.sum(), rest.c_S.sum()


def test_arrays_that_are_replaced_by_others_of_any_length_are_read_from_then_on():
    place = Place(PARTS, note)
    place.note((np.ones(2), Rest(np.full(2, 2.0), np.ones(1, int))))
    assert total(place.address) == (2.0, 4.0, 1.0)
    place.note((np.ones(2), Rest(np.full(2, 3.0), np.ones(1, int))))
    assert total(place.address) == (2.0, 6.0, 1.0)
    place.note((np.ones(5), Rest(np.full(5, 3.0), np.ones(4, int))))
    assert total(place.address) == (5.0, 15.0, 4.0)


def test_arrays_that_share_an_axis_must_agree_also_if_one_of_them_is_replaced():
    place, b_J, c_S = Place(PARTS, note), np.ones(2), np.ones(1, int)
    with pytest.raises(AssertionError, match="array b_J has 2 jobs, others have 3"):
        Place(PARTS, note).note((np.ones(3), Rest(b_J, c_S)))
    place.note((np.ones(2), Rest(b_J, c_S)))
    with pytest.raises(AssertionError, match="array b_J has 2 jobs, others have 3"):
        place.note((np.ones(3), Rest(b_J, c_S)))


def test_a_copy_has_noted_nothing_of_what_it_was_copied_from():
    place, arrays = Place(PARTS, note), (np.ones(2), Rest(np.ones(2), np.ones(1, int)))
    place.note(arrays)
    other, mine = copy.deepcopy((place, arrays))
    assert place.holds(arrays)
    assert not other.holds(mine)
    other.note(mine)
    mine[0][:] = 5.0
    assert (total(place.address)[0], total(other.address)[0]) == (2.0, 10.0)


def test_it_holds_the_arrays_noted_last_and_no_equal_ones():
    place, b_J, c_S = Place(PARTS, note), np.ones(2), np.ones(1, int)
    a_J, rest = np.ones(2), Rest(b_J, c_S)
    place.note((a_J, rest))
    assert place.holds((a_J, rest))
    assert not place.holds((a_J.copy(), rest))


def test_arrays_that_are_not_contiguous_are_refused():
    with pytest.raises(TypeError, match="No matching definition"):
        Place(PARTS, note).note((np.ones(4)[::2], Rest(np.ones(2), np.ones(1, int))))
