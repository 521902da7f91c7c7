"""Constraints name sites and classes that exist, and limits within their range."""

import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.errors import ScenarioError


def limited(text):
    return load_scenario("dvfs-mixed", [f"constraints={text}"]).constraints


def test_a_queue_limit_holds_for_all_sites_or_for_those_named():
    assert limited("{queue_max: 3}").queue_limit("us-west") == 3
    by_site = limited("{queue_max: {us-west: 2}}")
    assert (by_site.queue_limit("us-west"), by_site.queue_limit("us-east")) == (2, None)
    assert limited("{}").queue_limit("us-west") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{queue_max: {us-wets: 2}}", "constraints.queue_max names the unknown site 'us-wets'.*us-west"),
        ("{power_cap_w: {moon: 2}}", "constraints.power_cap_w names the unknown site 'moon'"),
        (
            "{latency_target_s: {trainig: 2}}",
            "constraints.latency_target_s names the unknown class 'trainig'.*training",
        ),
        ("{mean_latency_s: 0}", "constraints.mean_latency_s: .*greater than 0"),
        ("{queue_max: -1}", "constraints.queue_max"),
        ("{p95_latency_s: 3}", "constraints.p95_latency_s: unknown key.*p99_latency_s"),
    ],
)
def test_a_wrong_constraint_is_refused(text, message):
    with pytest.raises(ScenarioError, match=message):
        limited(text)


def test_the_clock_oracle_weighs_time_where_the_fleet_says_so():
    fleet = load_scenario("dvfs-training").fleet
    least = fleet.tables(8).oracle_level_SCG
    weighed = load_scenario("dvfs-training", ["fleet.clock_weight_w=200"]).fleet.tables(8)
    assert (weighed.oracle_level_SCG[:, 0, 1:] >= least[:, 0, 1:]).all()
    cost_SNF = (weighed.power_w_SCGF + 200.0)[:, 0, 1:] * weighed.seconds_per_unit_SCGF[:, 0, 1:]
    assert (weighed.oracle_level_SCG[:, 0, 1:] == cost_SNF.argmin(-1)).all()
    assert (weighed.oracle_level_SCG != least).any()
