import math

import pytest

from noonward.evaluate.statistics import Estimate, mean, ratio, t_quantile


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (2, 4.3027), (9, 2.2622), (30, 2.0423), (31, 2.0395), (40, 2.0211), (60, 2.0003), (1000, 1.9623)],
)
def test_t_quantiles_are_those_of_printed_tables(degrees, quantile):
    assert t_quantile(degrees) == pytest.approx(quantile, abs=1e-4)


def test_t_quantile_needs_a_degree_of_freedom():
    with pytest.raises(ValueError, match="0 degrees"):
        t_quantile(0)


def test_mean_and_its_interval_by_hand():
    found = mean([2.0, 4.0, 9.0])
    assert found.value == 5.0
    assert found.spread == pytest.approx(math.sqrt(13))
    assert found.high - found.value == pytest.approx(4.3027 * math.sqrt(13 / 3))
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_ratio_and_its_interval_by_hand():
    found = ratio([1.0, 3.0], [2.0, 4.0])
    assert found.value == pytest.approx(2 / 3)
    spread_of_residuals = math.sqrt(2 * (1 / 3) ** 2)
    assert found.high - found.value == pytest.approx(12.7062 * spread_of_residuals / math.sqrt(2) / 3)


def test_ratio_weighs_environments_by_their_size_and_is_no_mean_of_ratios():
    assert ratio([0.0, 10.0], [1.0, 9.0]).value == 1.0


def test_proportional_pairs_have_no_uncertainty():
    found = ratio([0.3, 0.6, 0.9], [1.0, 2.0, 3.0])
    assert (found.low, found.high) == (pytest.approx(0.3), pytest.approx(0.3))


@pytest.mark.parametrize("denominators", [[0.0, 0.0], [-1.0, -2.0], [1.0, -3.0], [math.nan, 1.0]])
def test_a_share_of_nothing_or_of_a_loss_is_not_defined(denominators):
    found = ratio([1.0, 2.0], denominators)
    assert math.isnan(found.value)
    assert (found.low, found.high, found.spread) == (None, None, None)


def test_a_single_environment_has_no_spread():
    assert mean([3.0]) == Estimate(3.0)
    assert ratio([1.0], [4.0]) == Estimate(0.25)


def test_a_mean_with_an_undefined_value_is_undefined():
    found = mean([1.0, math.nan])
    assert math.isnan(found.value)
    assert found.low is None
