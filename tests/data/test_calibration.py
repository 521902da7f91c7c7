from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from noonward.data.signals.calibration import CALIBRATIONS, load_calibration
from noonward.errors import DataError

ZONES = (
    "AU-SA", "AU-WA", "CA-ON", "PL", "SG", "DE", "FR", "ES", "NL", "AU-NSW", "AU-VIC", "US-CAL-CISO", "US-TEX-ERCO",
    "US-NY-NYIS", "KR",
)  # fmt: skip


@pytest.fixture(params=CALIBRATIONS)
def table(request):
    return load_calibration(request.param)


def test_fifteen_zones_are_calibrated(table):
    assert tuple(table.zones) == ZONES


def test_every_series_is_complete_and_finite(table):
    for zone in table.zones.values():
        for series in (zone.price, zone.carbon):
            assert series.profile_MH.shape == (12, 24)
            assert series.hour_spread_H.shape == (24,)
            assert series.residual_curve_MDK.shape == (12, 4, len(table.score_knots_K))
            assert np.isfinite(series.profile_MH).all()
            assert series.minimum < series.mean < series.maximum
            assert series.hours >= 8700


def test_curves_do_not_decrease_and_spreads_are_positive(table):
    assert (np.diff(table.score_knots_K) > 0).all()
    for zone in table.zones.values():
        for series in (zone.price, zone.carbon):
            assert (np.diff(series.residual_curve_MDK, axis=-1) >= 0).all()
            assert (series.hour_spread_H > 0).all()


def test_memory_shares_sum_to_one(table):
    for zone in table.zones.values():
        for series in (zone.price, zone.carbon):
            assert series.memory_share_C.sum() == pytest.approx(1.0)
            assert (series.memory_share_C >= 0).all()


def test_correlations_are_symmetric_with_unit_diagonal(table):
    for matrix in (table.correlation_SS, table.residual_correlation_SS):
        assert matrix.shape == (30, 30)
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_array_equal(np.diag(matrix), 1.0)
        assert np.abs(matrix).max() == 1.0


def test_correlation_of_zones_puts_prices_before_carbon(table):
    part = table.correlation_of(("PL", "AU-SA"))
    assert part[0, 1] == table.correlation_SS[3, 0]
    assert part[0, 2] == table.correlation_SS[3, 15 + 3]
    assert part[2, 3] == table.correlation_SS[15 + 3, 15]


def test_the_stand_in_and_the_publishers_are_stated(table):
    assert table.zones["AU-WA"].stand_ins == ("price",)
    assert all(not zone.stand_ins for name, zone in table.zones.items() if name != "AU-WA")
    stated = str(table.sources)
    for publisher in ("Electricity Maps", "ODbL", "ENTSO-E", "AEMO", "IESO", "EMC"):
        assert publisher in stated


def test_windows_differ_and_are_loaded_once():
    year, train = load_calibration("w2022"), load_calibration("train")
    assert year.zones["PL"].carbon.hours == 8760
    assert train.zones["PL"].carbon.hours == 21864
    assert load_calibration("w2022") is year


def test_tables_cannot_be_changed(table):
    with pytest.raises(ValueError, match="read-only"):
        table.zones["PL"].price.profile_MH[0, 0] = 0.0
    with pytest.raises(FrozenInstanceError):
        table.zones["PL"].price.mean = 0.0


def test_unknown_calibration_and_zone_name_the_known_ones():
    with pytest.raises(DataError, match=r"'w2021'.*did you mean 'w2022'"):
        load_calibration("w2021")
    with pytest.raises(DataError, match=r"'XX'.*AU-SA, AU-WA, CA-ON, PL, SG"):
        load_calibration().zone("XX")
