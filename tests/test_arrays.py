"""Tables of records grow without losing a row, and mostly without copying one."""

import numpy as np

from noonward.arrays import RESERVE, resized

RECORD = np.dtype([("serial", "i8"), ("time_s", "f8")])


def table(count):
    out = np.zeros(count, RECORD)
    out["serial"], out["time_s"] = np.arange(count), np.pi
    return out


def test_a_longer_table_has_the_same_rows_and_zeros_behind_them():
    longer = resized(table(3), 5)
    assert longer["serial"].tolist() == [0, 1, 2, 0, 0]
    assert longer["time_s"].tolist() == [np.pi] * 3 + [0.0] * 2


def test_a_table_grows_into_its_reserve_before_it_is_copied_again():
    first = resized(table(3), 6)
    first["serial"] = range(10, 16)
    for count in (12, 6 * RESERVE):
        longer = resized(first, count)
        assert np.shares_memory(first, longer)
        assert longer["serial"].tolist() == [*range(10, 16), *[0] * (count - 6)]
        assert longer.flags.c_contiguous
    assert not np.shares_memory(first, resized(first, 6 * RESERVE + 1))


def test_rows_behind_a_slice_of_somebody_elses_table_are_not_handed_out():
    whole = table(4)
    for records in (whole[:2], resized(whole, 4)[:2], resized(whole, 5)[:2]):
        longer = resized(records, 4)
        assert longer["serial"].tolist() == [0, 1, 0, 0]
        assert not np.shares_memory(longer, whole)
    assert whole["serial"].tolist() == [0, 1, 2, 3]
    assert resized(resized(whole, 5)[1:], 5)["serial"].tolist() == [1, 2, 3, 0, 0]


def test_a_shorter_table_is_a_copy_of_the_first_rows():
    whole = table(4)
    shorter = resized(whole, 2)
    assert shorter["serial"].tolist() == [0, 1]
    assert not np.shares_memory(whole, shorter)
    assert resized(shorter, 4)["serial"].tolist() == [0, 1, 0, 0]
