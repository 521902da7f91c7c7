"""The utility is linear, and one formula serves ledger, rewards and figures."""

import pytest

from noonward.compiled import kernel
from noonward.ledger.utility import utility_kernel, utility_usd


def test_the_parts_of_the_utility_by_hand():
    # 0.04 USD a GPU-hour, 85 USD a tonne: 40 of revenue, 3 of energy, 8.5 of carbon, 1.5 of links.
    assert utility_usd(0.04, 85.0, 1000.0, 3.0, 100.0, 1.5) == pytest.approx(40 - 3 - 8.5 - 1.5)


def test_the_parts_sum_to_the_whole():
    amounts = {"gpu_hours": 321.5, "energy_usd": 7.25, "kg": 55.0, "journeys_usd": 0.125}
    parts = [utility_usd(0.04, 85.0, **{name: amount}) for name, amount in amounts.items()]
    assert sum(parts) == pytest.approx(utility_usd(0.04, 85.0, **amounts), rel=1e-15)
    assert [part > 0 for part in parts] == [True, False, False, False]


def test_compiled_functions_have_the_same_formula():
    @kernel()
    def compiled(alpha, mu, hours, usd, kg, links):
        return utility_kernel(alpha, mu, hours, usd, kg, links)

    given = (0.0371, 84.3, 1234.5, 6.789, 55.5, 0.321)
    assert compiled(*given) == utility_usd(*given)
