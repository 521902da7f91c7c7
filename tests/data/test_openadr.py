"""Events of OpenADR 3 as scenarios read them: limits, times, notices, targets, and what is refused."""

import json
from datetime import UTC, datetime

import pytest

from noonward.data.events import with_stated_events
from noonward.data.openadr import read_openadr
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.errors import DataError, ScenarioError
from noonward.model.cluster.stated_events import EventFile

CONTRACT = {"site": "a", "openadr_target": "dc-1", "baseline_kw": 100, "ramp_min": 5, "usd_per_mwh": 300}
EVENT = {
    "id": "42", "objectType": "EVENT", "programID": "7", "eventName": "heat wave",
    "createdDateTime": "2025-05-03T20:00:00Z", "targets": ["dc-1"],
    "payloadDescriptors": [{"objectType": "EVENT_PAYLOAD_DESCRIPTOR", "payloadType": "IMPORT_CAPACITY_LIMIT",
                            "units": "KW"}],
    "intervalPeriod": {"start": "2025-05-03T16:00:00-07:00", "duration": "PT1H"},
    "intervals": [
        {"id": 0, "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [75]}]},
        {"id": 1, "payloads": [{"type": "PRICE", "values": [0.3]},
                               {"type": "IMPORT_CAPACITY_LIMIT", "values": [60.0]}]},
    ],
}  # fmt: skip


def read(tmp_path, objects, *contracts):
    (tmp_path / "events.json").write_text(json.dumps(objects))
    return read_openadr(EventFile(path=tmp_path / "events.json", contracts=contracts or (CONTRACT,)))


def test_intervals_with_limits_are_events_one_after_the_other(tmp_path):
    first, second = read(tmp_path, [EVENT])
    assert (first.start, second.start) == (datetime(2025, 5, 3, 23, tzinfo=UTC), datetime(2025, 5, 4, tzinfo=UTC))
    assert (first.hours, first.target_kw, second.target_kw) == (1.0, 75.0, 60.0)
    assert (first.notice_min, second.notice_min) == (180.0, 240.0)
    assert (first.site, first.baseline_kw, first.ramp_min, first.usd_per_mwh) == ("a", 100.0, 5.0, 300.0)


def test_an_interval_may_have_its_own_period_and_an_event_no_creation(tmp_path):
    own = {"start": "2025-05-04T03:00:00Z", "duration": "PT90M"}
    said = {**EVENT, "intervals": [EVENT["intervals"][0], {**EVENT["intervals"][1], "intervalPeriod": own}]}
    del said["createdDateTime"]
    first, second = read(tmp_path, said, {**CONTRACT, "notice_min": 10})
    assert (second.start.hour, second.hours, first.notice_min) == (3, 1.5, 10.0)


def test_what_is_null_is_not_stated(tmp_path):
    """``openadr3-client`` writes every field that is not stated as null."""
    nulls = {"priority": None, "reportDescriptors": None, "duration": None}
    period = {**EVENT["intervalPeriod"], "randomizeStart": None}
    intervals = [{**each, "intervalPeriod": None} for each in EVENT["intervals"]]
    said = {**EVENT, **nulls, "intervalPeriod": period, "intervals": intervals}
    assert read(tmp_path, said) == read(tmp_path, EVENT)


def test_targets_say_which_sites_are_meant(tmp_path):
    other = {**CONTRACT, "site": "b", "openadr_target": None}
    assert {each.site for each in read(tmp_path, EVENT, CONTRACT, other)} == {"a"}
    assert {each.site for each in read(tmp_path, {**EVENT, "targets": None}, CONTRACT, other)} == {"a", "b"}
    old = [{"type": "VEN_NAME", "values": ["b"]}]
    assert {each.site for each in read(tmp_path, {**EVENT, "targets": old}, CONTRACT, other)} == {"b"}


def test_other_units_are_brought_to_kw(tmp_path):
    descriptor = {**EVENT["payloadDescriptors"][0], "units": "W"}
    assert read(tmp_path, {**EVENT, "payloadDescriptors": [descriptor]})[0].target_kw == pytest.approx(0.075)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"intervalPeriod": {"start": "2025-05-03T16:00:00", "duration": "PT1H"}}, "has no offset"),
        ({"intervalPeriod": {"start": "2025-05-03T16:00:00Z", "duration": "P1Y"}}, "duration 'P1Y' is none of"),
        ({"intervalPeriod": {"duration": "PT1H"}}, "'start' is missing"),
        ({"intervals": [{"payloads": [{"type": "PRICE", "values": [1]}]}]}, "no event states IMPORT_CAPACITY_LIMIT"),
        ({"intervals": [{"payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [500]}]}]}, "above its baseline_kw"),
        ({"targets": ["elsewhere"]}, "no event states"),
        ({"intervals": ["now"]}, "see the event object of OpenADR 3"),
        ({"payloadDescriptors": [{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "HORSES"}]}, "'HORSES', not one of"),
    ],
)
def test_what_is_no_event_is_refused(tmp_path, change, said):
    with pytest.raises(DataError, match=said):
        read(tmp_path, [{**EVENT, **change}])


def test_a_file_that_holds_no_objects_is_refused(tmp_path):
    with pytest.raises(DataError, match="no event object"):
        read(tmp_path, [3])
    (tmp_path / "events.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        read_openadr(EventFile(path=tmp_path / "events.json", contracts=(CONTRACT,)))


def test_a_scenario_reads_them(tmp_path):
    (tmp_path / "events.json").write_text(json.dumps([EVENT]))
    content = load_scenario("tiny").model_dump(mode="json")
    site = content["fleet"]["sites"][0]
    site["meter"], content["fleet"]["tariffs"] = {"tariff": "t"}, {"t": {}}
    contract = {**CONTRACT, "site": site["name"]}
    content["events"] = {"path": "events.json", "contracts": [contract]}
    scenario = scenario_from(content, base=tmp_path)
    assert [each.target_kw for each in scenario.events] == [75.0, 60.0]
    assert with_stated_events(scenario) is scenario
    with pytest.raises(ScenarioError, match="needs contracts"):
        scenario_from({**content, "events": "events.json"}, base=tmp_path)
    with pytest.raises(ScenarioError, match="takes no contracts"):
        scenario_from({**content, "events": {"path": "events.csv", "contracts": [contract]}}, base=tmp_path)
