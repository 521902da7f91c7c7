"""Elements and the order of positive numbers, as compiled loops read them."""

import numba
import numpy as np

from noonward.vectorised import item, positive_order


@numba.njit
def _items(matrix):
    out = np.empty(matrix.shape)
    for row in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            out[row, column] = item(matrix, row, column)
    return out


@numba.njit
def _most(values):
    most = positive_order(0.0)
    for value in values:
        most = max(most, positive_order(value))
    for n in range(len(values)):
        if positive_order(values[n]) == most:
            return n
    return -1


def test_an_item_is_the_element_at_row_and_column():
    matrix = np.random.default_rng(0).normal(size=(5, 7))
    assert np.array_equal(_items(matrix), matrix)
    assert np.array_equal(_items(matrix[:, 1:4]), matrix[:, 1:4])
    assert np.array_equal(_items(matrix.T), matrix.T)


def test_the_first_of_the_largest_positive_values_is_found_whatever_lies_below_zero():
    rng = np.random.default_rng(1)
    for _ in range(200):
        values = np.round(rng.normal(size=rng.integers(1, 40)), 1) * 10.0 ** rng.integers(-300, 300)
        expected = int(values.argmax()) if values.max() > 0 else -1
        assert _most(values) == expected or (expected == -1 and values[_most(values)] == 0.0)
