"""Scenario files: packaged and own, values set from outside, signals and jobs put in from files."""

from pathlib import Path

import pytest

from noonward.data.environments import build_environment
from noonward.data.jobs.load import write_job_table
from noonward.data.scenarios.load import load_scenario, packaged_scenarios, scenario_from, with_files
from noonward.errors import ScenarioError
from noonward.model.cluster.scenario import FineTuningJobs, JobTable, SignalFiles

TEXT = """
name: own
protocol: on-arrival
window_h: 1
end: window
fleet:
  gpu_types: {T: {idle_w: 1, classes: {c: {power: {constant_w: 100}}}}}
  sites: [{name: a, zone: SG, gpu_type: T, gpus: 2}]
jobs: {source: poisson, rate_per_s: 0.01, median_work: 60, sigma: 0}
"""
FILES = (
    "signals: {source: files, paths: [here.csv, sub/there.csv, /absolute.csv]}\njobs: {source: table, path: jobs.csv}\n"
)


@pytest.fixture
def own(tmp_path):
    """Writes a scenario file and returns its path."""

    def write(text=TEXT, name="own.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_packaged_scenarios_load():
    assert {"fine-tuning", "tiny", "dvfs-training"} <= set(packaged_scenarios())
    for name in packaged_scenarios():
        assert load_scenario(name).name == name


@pytest.mark.parametrize("suffix", ["yaml", "yml"])
def test_an_own_file_is_loaded_by_its_path(own, suffix):
    path = own(name=f"own.{suffix}")
    assert load_scenario(path) == load_scenario(str(path))
    assert load_scenario(path).window_h == 1


def test_relative_paths_start_from_the_files_folder(own, tmp_path, monkeypatch):
    path = own(TEXT[: TEXT.index("jobs:")] + FILES, "folder/own.yaml")
    monkeypatch.chdir(tmp_path)
    for given in (path, Path("folder/own.yaml")):
        scenario = load_scenario(given)
        folder = Path(given).parent
        assert scenario.signals.paths == (folder / "here.csv", folder / "sub/there.csv", Path("/absolute.csv"))
        assert scenario.jobs.path == folder / "jobs.csv"


def test_a_relative_trace_starts_from_the_files_folder_and_calibrated_stays_a_word(own):
    text = load_scenario("tiny").model_dump_json()  # JSON is YAML
    assert load_scenario(own(text)).jobs.trace == "calibrated"
    path = own(text.replace('"trace":"calibrated"', '"trace":"trace.csv"'))
    assert load_scenario(path).jobs.trace == path.parent / "trace.csv"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tinny", r"unknown scenario 'tinny'; did you mean 'tiny'.*\(or give the path of a \.yaml file\)"),
        ("missing.yaml", r"scenario file missing\.yaml does not exist; check the path"),
    ],
)
def test_an_unknown_scenario_is_refused(name, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", r"own\.yaml is not valid YAML: "),
        ("- name", r"own\.yaml holds no mapping"),
        ("", r"own\.yaml holds no mapping"),
        ("name: own", r"own\.yaml is not a valid scenario \(5 problems\):"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(own, text, message):
    with pytest.raises(ScenarioError, match=message):
        load_scenario(own(text))


def test_the_message_on_bad_yaml_is_one_line(own):
    with pytest.raises(ScenarioError) as refused:
        load_scenario(own("name: [\n\n"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "fleet:\n  sites: [a, b\njobs: 3\n",
            "line 3, column 5: the list opened in line 2, column 10 needs ',' or its",
        ),
        ("a: {b: 3\nc: 4\n", "line 2, column 2: the mapping opened in line 1, column 4 needs ',' or its '}'"),
        ("name: a\n\tfleet: 3\n", "line 2, column 1: a tab; indent with spaces"),
        ('name: "a\nfleet: 3\n', "line 3, column 1: the quotes opened in line 1, column 7 are not closed"),
        ("name: a\n  fleet: 3\n", "line 2, column 8: no key may stand here; put a text that holds ': ' in quotes, or"),
        (
            "sites:\n  - name: a\n   gpus: 3\n",
            "line 3, column 4: indented unlike the lines of the mapping or list in line",
        ),
        ("name: a\nfleet\njobs: 3\n", "line 3, column 1: the key in line 2, column 1 has no ':' behind it"),
        ("name: @a\n", "line 1, column 7: a value cannot begin with '@'; put it in quotes"),
        ("name: [", "line 1, column 8: a value is missing here"),
        ("name: *x\n", "line 1, column 7: '*x' refers to '&x', which is nowhere"),
        ("name: !!python/object:os.system x\n", "line 1, column 7: a tag ('!...') is not allowed; leave it out"),
        ("name: a\n---\nname: b\n", "line 2, column 1: a second document begins"),
        ("%odd\nname: a\n", "line 2, column 1: a directive ('%...') stands before it"),
        ("name: a\n# \x01\n", "line 2, column 3: U+0001 is no character for a text; remove it"),
        ("name: a\nname: b\n", "line 2, column 1: the key 'name' stands twice; keep one of them"),
        ("name: a\n3: b\n", "line 2, column 1: the key 3 is no text; put it in quotes or rename it"),
        ("start: 2022-99-99\n", "line 1, column 8: '2022-99-99' cannot be read (month must be in 1..12)"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_plain_words_with_its_place(own, text, says):
    with pytest.raises(ScenarioError) as refused:
        load_scenario(own(text))
    assert f"own.yaml is not valid YAML: {says}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_values_are_set_at_any_depth_in_order():
    settings = [
        "window_h=3",
        "fleet.sites.1.gpus=40",
        "network={usd_per_gb: 0.5}",
        "signals.months=[3]",
        "jobs.kinds.text-generation.data.low_gb=0",
        "window_h=4",
        "description=a = b",
    ]
    scenario = load_scenario("tiny", settings)
    assert scenario.window_h == 4
    assert [site.gpus for site in scenario.fleet.sites] == [8, 40]
    assert scenario.network.usd_per_gb == 0.5
    assert scenario.network.kwh_per_gb == 0.0  # the whole of network was replaced
    assert scenario.signals.months == (3,)
    assert scenario.jobs.kinds["text-generation"].data.low_gb == 0
    assert scenario.description == "a = b"


def test_a_part_that_the_file_leaves_out_may_be_set(own):
    assert load_scenario(own(), ["network.usd_per_gb=0.5"]).network.usd_per_gb == 0.5


def test_settings_leave_the_packaged_scenario_alone():
    before = load_scenario("tiny")
    load_scenario("tiny", ["fleet.sites.0.gpus=99"])
    assert load_scenario("tiny") == before


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("window_h", "setting 'window_h' is not of the form key.key=value"),
        ("=3", "setting '=3' is not of the form"),
        ("", "setting '' is not of the form"),
        ("window_h=[", "setting 'window_h=[': the value is not valid YAML"),
        ("window_h.x=1", "setting 'window_h.x=1': window_h holds a single value, so it has no key 'x'"),
        ("fleet.sites.2.gpus=1", "fleet.sites has the positions 0 to 1, not '2'"),
        ("fleet.sites.-1.gpus=1", "fleet.sites has the positions 0 to 1, not '-1'"),
        ("fleet.sites.north.gpus=1", "fleet.sites has the positions 0 to 1, not 'north'"),
        ("fleet.sites.9={}", "fleet.sites has the positions 0 to 1, not '9'"),
        ("windowh=1", "windowh: unknown key; did you mean 'window_h'"),
        ("fleet.site.0=1", "fleet.site: unknown key; did you mean 'sites'"),
        ("fleet.gpu_types.T4-class.clocks=[1, 0.5]", "fleet: GPU type 'T4-class' has clocks [1.0, 0.5]"),
        ("window_h=", "window_h: input should be a valid integer (value: None)"),
    ],
)
def test_a_bad_setting_is_refused(setting, message):
    with pytest.raises(ScenarioError) as refused:
        load_scenario("tiny", [setting])
    assert message in str(refused.value)


def test_scenario_from_names_its_source():
    with pytest.raises(ScenarioError, match=r"^thing is not a valid scenario"):
        scenario_from({}, "thing")


def test_signals_are_put_in_from_files_and_months_stay(own, tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    for path in (one, two):
        path.touch()
    changed = with_files(load_scenario("tiny", ["signals.months=[3, 4]"]), [one, two])
    assert isinstance(changed.signals, SignalFiles)
    assert changed.signals.paths == (one, two)
    assert changed.signals.months == (3, 4)
    assert changed.jobs == load_scenario("tiny").jobs
    assert with_files(load_scenario(own()), [one]).signals.months == tuple(range(1, 13))


def test_a_table_with_origins_replaces_the_jobs(tmp_path):
    scenario = load_scenario("tiny")
    environment = build_environment(scenario)
    path = tmp_path / "jobs.csv"
    write_job_table(environment.jobs, environment.fleet, path)
    changed = with_files(scenario, jobs=path)
    assert changed.jobs == JobTable(source="table", path=path)
    assert build_environment(changed).jobs.work_J.tolist() == environment.jobs.work_J.tolist()


def test_a_file_without_origins_is_a_trace_for_fine_tuning_jobs(own, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("submit_time_s,duration_s,num_gpus\n0,60,1\n", encoding="utf-8")
    changed = with_files(load_scenario("tiny"), jobs=path)
    assert isinstance(changed.jobs, FineTuningJobs)
    assert changed.jobs.trace == path
    assert changed.jobs.count == load_scenario("tiny").jobs.count
    with pytest.raises(ScenarioError, match=r"has no column 'origin'.*scenario 'own' takes none"):
        with_files(load_scenario(own()), jobs=path)


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    for options in ({"signals": [tmp_path / "none.csv"]}, {"jobs": tmp_path / "none.csv"}):
        with pytest.raises(ScenarioError, match=r"none\.csv does not exist; check the path"):
            with_files(load_scenario("tiny"), **options)


def test_without_files_the_scenario_stays(own):
    for scenario in (load_scenario("tiny"), load_scenario(own())):
        assert with_files(scenario) == scenario


def test_an_own_scenario_builds_its_jobs(own):
    environment = build_environment(load_scenario(own()))
    assert set(environment.jobs.work_J.round(9).tolist()) == {60.0}


# ---------------------------------------------------------------- extends


def test_a_scenario_extends_a_packaged_one_and_changes_what_it_names(own):
    path = own("extends: dvfs-training\nname: mine\nwindow_h: 2\nfleet: {clock_weight_w: 5}\n")
    mine, base = load_scenario(path), load_scenario("dvfs-training")
    assert (mine.name, mine.window_h, mine.fleet.clock_weight_w) == ("mine", 2, 5)
    assert mine.fleet.sites == base.fleet.sites
    assert mine.jobs == base.jobs


def test_another_source_of_jobs_replaces_the_one_below_whole(own):
    path = own(
        "extends: tiny\nname: mine\nend: window\njobs: {source: poisson, rate_per_s: 1, median_work: 9, sigma: 0}\n"
    )
    assert load_scenario(path).jobs.source == "poisson"


def test_settings_apply_on_top_of_what_a_scenario_extends(own):
    path = own("extends: dvfs-training\nname: mine\n")
    assert load_scenario(path, ["jobs.sigma=0.1"]).jobs.sigma == 0.1


def test_an_unknown_scenario_to_extend_is_refused(own):
    with pytest.raises(ScenarioError, match=r"extends the unknown scenario 'dvfs-trainig'.*dvfs-training"):
        load_scenario(own("extends: dvfs-trainig\nname: mine\n"))


def test_dvfs_mixed_shares_the_fleet_of_dvfs_training():
    mixed, base = load_scenario("dvfs-mixed"), load_scenario("dvfs-training")
    assert mixed.fleet.gpu_types == base.fleet.gpu_types
    assert mixed.network == base.network
    assert [(site.name, site.gpus) for site in mixed.fleet.sites] == [(s.name, s.gpus) for s in base.fleet.sites]


def test_a_file_that_extends_may_replace_the_sites(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    sites = "  sites:\n    - {name: here, zone: FR, gpu_type: T4-class, gpus: 16}\n"
    path.write_text(f"extends: tiny\nname: mine\nfleet:\n{sites}jobs: {{origin_shares: {{here: 1}}}}\n")
    scenario = load_scenario(path)
    assert scenario.fleet.site_names == ("here",)
    assert scenario.jobs.origin_shares == {"here": 1.0}
    assert scenario.jobs.count == load_scenario("tiny").jobs.count
    path.write_text(f"extends: tiny\nname: mine\nfleet:\n{sites}")
    with pytest.raises(ScenarioError, match=r"jobs\.origin_shares names the unknown ingress 'north'; known: here"):
        load_scenario(path)


def test_what_is_stated_of_day_ahead_prices_reaches_the_signals_and_an_unknown_market_is_refused():
    plain = load_scenario("tiny")
    told = load_scenario("tiny", ["signals.day_ahead={PL: false}"])
    assert build_environment(told).signals.day_ahead == {"PL": False}
    assert not build_environment(plain).signals.day_ahead
    assert "day_ahead" not in plain.model_dump()["signals"]
    assert plain.digest != told.digest
    with pytest.raises(ScenarioError, match="no day-ahead market is known for the zones SG; known are those of"):
        load_scenario("tiny", ["signals.day_ahead={SG: true}"])
