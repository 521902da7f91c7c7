"""Lines per site: every site of any environment, means over all of them, cells in the order of the columns."""

from dataclasses import dataclass
from types import SimpleNamespace

from noonward.evaluate.site_lines import SiteLines


@dataclass(frozen=True)
class Visits:
    guests: float
    energy_kwh: float


NONE = Visits(0.0, 0.0)


def compared(records, ranked=("b", "a")):
    """Returns a comparison of two policies, given what each environment's ledger says of ``visits``."""
    ledgers = {
        policy: [SimpleNamespace(ledger=SimpleNamespace(visits=visits)) for visits in records[policy]]
        for policy in "ab"
    }
    return SimpleNamespace(records=ledgers, reference="a", ranked=lambda: list(ranked))


TWO = compared(
    {
        "a": [{"north": Visits(1.0, 10.0)}, {"north": Visits(3.0, 30.0), "south": Visits(5.0, 0.0)}],
        "b": [{"north": Visits(2.0, 20.0)}, {"north": Visits(2.0, 20.0), "south": Visits(7.0, 0.0)}],
    }
)
LINES = SiteLines("visits", Visits, "visit", none=NONE)


def test_a_site_without_lines_in_one_environment_counts_as_none_there():
    assert LINES.sites(TWO) == ("north", "south")
    assert LINES.values(TWO, "a", "south", "guests").tolist() == [0.0, 5.0]


def test_rows_follow_sites_then_rank_and_cells_the_columns():
    rows = list(LINES.rows(TWO, {"energy (kWh)": ("energy_kwh", 1), "guests": ("guests", 0)}))
    assert [(site, policy) for site, policy, _ in rows] == [
        ("north", "b"), ("north", "a"), ("south", "b"), ("south", "a"),
    ]  # fmt: skip
    assert [cell.split()[0] for cell in rows[1][2]] == ["20.0", "2"]


def test_a_metric_says_kind_site_line_and_policy_and_the_unit_of_the_line():
    metric = LINES.metric(TWO, "south", "b", "energy_kwh")
    assert (metric.name, metric.value, metric.unit) == ("visit/south/energy_kwh/b", 0.0, "kWh")
    assert LINES.names == ("guests", "energy_kwh")
    assert LINES.metric(TWO, "north", "a", "guests").value == 2.0
