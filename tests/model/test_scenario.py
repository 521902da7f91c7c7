"""A scenario is validated whole: what is wrong, where, and what would be right; its schema and its digest."""

import copy
import itertools

import pytest
import yaml

from noonward.data.scenarios.load import load_scenario, packaged_scenarios, scenario_from
from noonward.errors import ScenarioError
from noonward.model.cluster.scenario import Scenario

TINY = yaml.safe_load(load_scenario("tiny").model_dump_json())


def tiny(**changes):
    """The content of the packaged scenario tiny with some values set: keys with two underscores for dots."""
    content = copy.deepcopy(TINY)
    for path, value in changes.items():
        *above, last = path.split("__")
        node = content
        for key in above:
            node = node[int(key)] if isinstance(node, list) else node[key]
        node[last] = value
    return content


@pytest.mark.parametrize(
    ("changes", "place", "hint"),
    [
        ({"windowh": 3}, "windowh", "did you mean 'window_h'"),
        ({"fleet__sitess": []}, "fleet.sitess", "did you mean 'sites'"),
        ({"fleet__sites__1__puee": 1}, "fleet.sites.1.puee", "did you mean 'pue'"),
        ({"fleet__gpu_types__T4-class__idel_w": 1}, "fleet.gpu_types.T4-class.idel_w", "did you mean 'idle_w'"),
        (
            {"fleet__gpu_types__T4-class__classes__fine-tuning__power__cubic": 1},
            "fleet.gpu_types.T4-class.classes.fine-tuning.power.cubic",
            "did you mean 'cubic_w'",
        ),
        (
            {"fleet__gpu_types__T4-class__classes__fine-tuning__time": {"per_clok_s": 1}},
            "fleet.gpu_types.T4-class.classes.fine-tuning.time.per_clok_s",
            "did you mean 'per_clock_s'",
        ),
        ({"fleet__ingress": [{"name": "x", "hom": "y"}]}, "fleet.ingress.0.hom", "did you mean 'home'"),
        ({"network__latency": 1}, "network.latency", "did you mean 'latency_ms'"),
        ({"signals__yaer": 2000}, "signals.yaer", "did you mean 'year'"),
        ({"signals": {"source": "files", "paths": ["a"], "formt": "tidy"}}, "signals.formt", "did you mean 'format'"),
        ({"jobs__demnd": 1}, "jobs.demnd", "did you mean 'demand'"),
        ({"jobs__kinds__text-generation__dta": {}}, "jobs.kinds.text-generation.dta", "did you mean 'data'"),
        (
            {"jobs__kinds__text-generation__data__low": 1},
            "jobs.kinds.text-generation.data.low",
            "did you mean 'low_gb'",
        ),
        ({"economics__revenue": 1}, "economics.revenue", "known: carbon_usd_per_t, gpu_usd_per_hour, revenue"),
    ],
)
def test_an_unknown_key_is_refused_at_its_place_with_the_nearest_known_one(changes, place, hint):
    with pytest.raises(ScenarioError) as refused:
        scenario_from(tiny(**changes))
    assert f"\n  {place}: unknown key; {hint}" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fleet__sites__1__gpus": 0}, "fleet.sites.1.gpus: input should be greater than or equal to 1 (value: 0)"),
        ({"fleet__sites__0__pue": 0.9}, "fleet.sites.0.pue: input should be greater than or equal to 1 (value: 0.9)"),
        ({"slot_s": 0}, "slot_s: input should be greater than or equal to 1 (value: 0)"),
        ({"slot_s": 7}, "slot_s is 7 s; a slot must divide the hour (3600 s)"),
        ({"window_h": 1.5}, "window_h: input should be a valid integer"),
        ({"end": "never"}, "end: input should be 'drained' or 'window' (value: 'never')"),
        ({"signals__months": [13]}, "signals.months.0: input should be less than or equal to 12 (value: 13)"),
        ({"signals__source": "fils"}, "signals: input tag 'fils' found using 'source' does not match"),
        ({"jobs__demand": float("nan")}, "jobs.demand: input should be a finite number (value: nan)"),
        ({"jobs__demand": 0}, "jobs.demand: input should be greater than 0 (value: 0)"),
        (
            {"jobs__origin_shares": {"north": -1}},
            "jobs.origin_shares.north: input should be greater than or equal to 0",
        ),
        ({"jobs__origin_shares": {"north": 0, "south": 0}}, "jobs: origin_shares sum to 0; give at least one"),
        (
            {"jobs__origin_shares": {"nort": 1}},
            "jobs.origin_shares names the unknown ingress 'nort'; did you mean 'north'",
        ),
        (
            {"jobs__kinds__text-generation__share": 0.5},
            "jobs: the shares of the job kinds sum to 0.5; they must sum to 1",
        ),
        ({"jobs__kinds__text-generation__share": 2}, "share: input should be less than or equal to 1 (value: 2)"),
        (
            {"jobs__kinds__text-generation__data__low_gb": 9},
            "jobs.kinds.text-generation.data: high_gb 5.0 is below low_gb 9.0",
        ),
        ({"signals": None}, "economics need signals"),
        ({"network__usd_per_gb": [[1]]}, "network.usd_per_gb has shape (1, 1); give one number or 2 rows"),
        (
            {"network__usd_per_gb": [[1, 2], [3]]},
            "network.usd_per_gb has rows of unequal length; give one number or 2 rows",
        ),
        (
            {
                "jobs": {
                    "source": "poisson",
                    "rate_per_s": 1,
                    "median_work": 1,
                    "sigma": 0,
                    "gpus_min": 3,
                    "gpus_max": 2,
                }
            },
            "jobs: gpus_max 2 is below gpus_min 3",
        ),
        (
            {"signals": {"source": "files", "paths": ["a"], "first_day": "2022-02-02", "last_day": "2022-02-01"}},
            "signals: last_day 2022-02-01 is before first_day 2022-02-02",
        ),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_what_is(changes, message):
    with pytest.raises(ScenarioError) as refused:
        scenario_from(tiny(**changes))
    assert message in str(refused.value)


def test_a_missing_value_is_named():
    content = tiny()
    del content["jobs"]["kinds"]["text-generation"]["model"]["high_gb"]
    with pytest.raises(ScenarioError, match=r"jobs\.kinds\.text-generation\.model\.high_gb: missing; give it a value"):
        scenario_from(content)


def test_all_problems_are_told_at_once():
    with pytest.raises(ScenarioError, match=r"\(2 problems\)") as refused:
        scenario_from(tiny(windowh=1, slot_s=-1))
    assert "windowh" in str(refused.value)
    assert "slot_s" in str(refused.value)


def test_slots_are_not_looked_at_where_jobs_are_asked_on_arrival():
    assert scenario_from(tiny(protocol="on-arrival", slot_s=7)).slot_s == 7


def test_a_scenario_without_economics_needs_no_signals():
    assert scenario_from(tiny(signals=None, economics=None)).signals is None


@pytest.mark.parametrize("name", packaged_scenarios())
def test_a_scenario_survives_its_own_text(name):
    scenario = load_scenario(name)
    assert type(scenario).model_validate_json(scenario.model_dump_json()) == scenario
    again = scenario_from(yaml.safe_load(yaml.safe_dump(scenario.model_dump(mode="json"), sort_keys=False)))
    assert again == scenario
    assert again.digest == scenario.digest


def test_every_field_of_the_schema_says_what_it_is():
    schema = Scenario.model_json_schema()
    tables = {"Scenario": schema, **schema["$defs"]}
    fields = [
        (table, name, field) for table, node in tables.items() for name, field in node.get("properties", {}).items()
    ]
    assert len(fields) > 80
    silent = [f"{table}.{name}" for table, name, field in fields if name != "source" and not field.get("description")]
    assert silent == []


def test_the_schema_refuses_unknown_keys_everywhere():
    schema = Scenario.model_json_schema()
    objects = [node for node in (schema, *schema["$defs"].values()) if node["type"] == "object"]
    assert len(objects) > 15
    assert all(node["additionalProperties"] is False for node in objects)


def test_digests_tell_scenarios_apart():
    changes = [
        {}, {"name": "other"}, {"slot_s": 30}, {"fleet__sites__0__pue": 1.01}, {"fleet__sites__1__pue": 1.01},
        {"signals": {"source": "generated", "year": 2023}}, {"jobs__kinds__text-generation__data__low_gb": 0.5},
        {"economics__carbon_usd_per_t": 99.0},
    ]  # fmt: skip
    digests = [scenario_from(tiny(**change)).digest for change in changes]
    assert all(one != other for one, other in itertools.combinations(digests, 2))
    assert digests[0] == load_scenario("tiny").digest


def test_digests_leave_out_what_changes_no_run():
    for change in ({"description": "other"}, {"policies": []}, {"baseline": None}):
        assert scenario_from(tiny(**change)).digest == load_scenario("tiny").digest


def test_a_key_may_have_its_earlier_name(tmp_path):
    stated = {**tiny(), "baseline": "random"}
    earlier = {"reference_policy" if key == "baseline" else key: value for key, value in stated.items()}
    assert scenario_from(earlier) == scenario_from(stated)
    assert load_scenario("tiny", ["reference_policy=random"]).baseline == "random"
    (tmp_path / "own.yaml").write_text("extends: tiny\nreference_policy: random\n")
    assert load_scenario(tmp_path / "own.yaml").baseline == "random"
    with pytest.raises(ScenarioError, match="reference_policy is the earlier name of baseline; state only baseline"):
        scenario_from(earlier | {"baseline": "random"})
