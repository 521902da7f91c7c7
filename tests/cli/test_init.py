"""``noonward init``: what it writes runs, what it decides is said, what it cannot use is refused."""

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from command_line import CommandLine
from noonward.data.gpu_library import find_gpu, gpu_library
from noonward.data.scenarios.load import load_scenario
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.runtime.by_kind import build_environment

FIRST = datetime(2022, 10, 1, tzinfo=UTC)
BERLIN = ["--site", "berlin=DE:8xA100-80-SXM"]
PARIS = ["--site", "paris=FR:8xA100-80-SXM"]


@pytest.fixture
def files(noonward: CommandLine) -> None:
    """Jobs of four days, and signals of both zones from a week before to two days after."""
    hours = [FIRST + timedelta(hours=hour) for hour in range(96)]
    table = {
        "submit_time": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours],
        "origin": ["bln", "par"] * 48,
        "gpus": [1, 2] * 48,
        "duration_s": [1800.0] * 96,
    }
    pl.DataFrame(table).write_csv("jobs.csv")
    kinds = ["a100", None, "l4", "A100-SXM4-80GB"] * 24
    pl.DataFrame(table | {"origin": ["oslo"] * 96, "gpu_type": kinds}).write_csv("typed.csv")
    drawn = generate_signals(("DE", "FR"), FIRST - timedelta(days=7), 13 * 24, np.random.default_rng(0))
    write_generated_signals(drawn, Path("signals.csv"))


def test_sites_alone_give_a_scenario_that_runs(noonward: CommandLine) -> None:
    answer = noonward("init", "mine.yaml", *BERLIN, *PARIS)
    assert answer.code == 0, answer.err
    scenario = load_scenario("mine.yaml")
    assert [site.name for site in scenario.fleet.sites] == ["berlin", "paris"]
    assert scenario.fleet.gpu_types["A100-80-SXM"].idle_w == gpu_library()["A100-80-SXM"].idle_w
    assert scenario.end == "drained"
    assert (scenario.baseline, scenario.goal) == ("local-fcfs", "least-cost")
    assert {"bid-price-published", "booked-published"} < set(scenario.policies)
    assert "bid-price-regression" not in scenario.policies
    assert len(build_environment(scenario).jobs) > 0
    assert noonward("simulate", "mine.yaml", "--policy", "local-fcfs").code == 0


def test_names_that_yaml_reads_as_something_else_stay_names(noonward: CommandLine) -> None:
    assert noonward("init", "mine.yaml", "--site", "no=DE:8xA30", "--site", "12=FR:8xA30").code == 0
    assert load_scenario("mine.yaml").fleet.site_names == ("no", "12")
    norway = noonward("init", "norway.yaml", "--site", "oslo=NO:8xA30")
    assert (norway.code, "zone 'NO' has no packaged statistics" in norway.err) == (2, True)


def test_planners_read_published_prices_where_a_zone_has_a_day_ahead_market(noonward: CommandLine) -> None:
    assert noonward("init", "both.yaml", *BERLIN, "--site", "sydney=AU-NSW:8xA30").code == 0
    assert "bid-price-published" in load_scenario("both.yaml").policies
    assert noonward("init", "mine.yaml", "--site", "sydney=AU-NSW:8xA30").code == 0
    policies = load_scenario("mine.yaml").policies
    assert {"patient", "bid-price-regression", "booked-regression"} < set(policies)
    assert not any("published" in name for name in policies)


def test_jobs_and_signals_run_on_the_days_that_they_share(noonward: CommandLine, files: None) -> None:
    words = ["--jobs", "jobs.csv", "--signals", "signals.csv", "--origin", "bln=berlin", "--origin", "par=paris"]
    answer = noonward("init", "mine.yaml", *BERLIN, *PARIS, *words)
    assert answer.code == 0, answer.err
    assert "window: 2022-10-02 to 2022-10-04, the days that jobs and signals share" in answer.out
    assert "24 of the 96 jobs" not in answer.out
    assert "72 of the 96 jobs of mine-jobs.csv are submitted between 2022-10-02" in answer.out
    scenario = load_scenario("mine.yaml")
    assert (str(scenario.start), scenario.window_h, scenario.jobs.slack_h) == ("2022-10-02", 72, 24.0)
    environment = build_environment(scenario)
    assert environment.jobs.origin_J.tolist() == [0, 1] * 36
    assert environment.sample_jobs is not None
    assert pl.read_csv("mine-jobs.csv")["origin"].to_list() == ["berlin", "paris"] * 48
    assert noonward("simulate", "mine.yaml", "--policy", "cheapest-feasible").code == 0


def test_a_table_under_the_fleets_own_names_is_used_as_it_is(noonward: CommandLine, files: None) -> None:
    sites = ["--site", "bln=DE:8xA30", "--site", "par=FR:8xA30"]
    answer = noonward("init", "mine.yaml", *sites, "--jobs", "jobs.csv", "--signals", "signals.csv", "--slack-h", "inf")
    assert answer.code == 0, answer.err
    assert not Path("mine-jobs.csv").exists()
    content = yaml.safe_load(Path("mine.yaml").read_text())
    assert content["jobs"] == {
        "source": "table", "path": "jobs.csv", "leave_alone_min": 15, "knowledge": {"run_time": "learned"},
    }  # fmt: skip
    assert content["end"] == "drained"
    assert np.isinf(build_environment(load_scenario("mine.yaml")).jobs.slack_s_J).all()


def test_jobs_keep_to_the_gpu_type_that_they_ran_on(noonward: CommandLine, files: None) -> None:
    words = ["--site", "oslo=DE:8xA100-80-SXM,8xL4", *PARIS, "--jobs", "typed.csv", "--signals", "signals.csv"]
    answer = noonward("init", "mine.yaml", *words)
    assert answer.code == 0, answer.err
    assert "which may be any of A100-80-SXM, L4: taken as A100-80-SXM" in answer.out
    scenario = load_scenario("mine.yaml")
    assert scenario.fleet.ranges == {"a100-80-sxm": ("oslo-a100-80-sxm", "paris"), "l4": ("oslo-l4",)}
    table = pl.read_csv("mine-jobs.csv")
    assert table.filter(pl.col("gpu_type") == "l4").select("origin", "class").unique().rows() == [("oslo-l4", "l4")]
    assert noonward("simulate", "mine.yaml", "--policy", "local-fcfs").code == 0


def test_jobs_without_an_origin_among_others_are_counted_with_what_to_do(noonward: CommandLine, files: None) -> None:
    table = pl.read_csv("jobs.csv").with_columns(pl.col("origin").replace({"bln": "berlin", "par": None}))
    table.write_csv("log.csv")
    answer = noonward("init", "mine.yaml", *BERLIN, *PARIS, "--jobs", "log.csv", "--signals", "signals.csv")
    assert answer.code == 2
    assert f"{table['origin'].null_count()} of {table.height} jobs do not say where they come from" in answer.err
    assert "noonward import ... --origin FILE=berlin" in answer.err


def test_classes_come_from_columns_of_the_log(noonward: CommandLine, files: None) -> None:
    table = pl.read_csv("jobs.csv").with_columns(partition=pl.Series(["dev", "gpu", "gpu", "gpu"] * 24))
    table.write_csv("log.csv")
    words = ["--jobs", "log.csv", "--signals", "signals.csv", "--origin", "bln=berlin", "--origin", "par=paris"]
    answer = noonward("init", "mine.yaml", *BERLIN, *PARIS, *words, "--class", "interactive=Partition==dev")
    assert answer.code == 0, answer.err
    assert "classes of jobs: 72 job, 24 interactive" in answer.out
    scenario = load_scenario("mine.yaml")
    assert scenario.fleet.classes == ("interactive", "job")
    environment = build_environment(scenario)
    assert environment.details is not None
    assert (environment.jobs.class_J == 0).tolist() == (environment.details["partition"] == "dev").to_list()
    # The same classes with GPU types: a class each.
    sites = ["--site", "berlin=DE:8xA100-80-SXM,8xL4", *PARIS]
    answer = noonward("init", "typed.yaml", *sites, *words, "--class", "interactive=Partition==dev")
    assert answer.code == 0, answer.err
    assert set(load_scenario("typed.yaml").fleet.classes) == {
        "interactive-a100-80-sxm", "interactive-l4", "job-a100-80-sxm", "job-l4",
    }  # fmt: skip
    answer = noonward("init", "none.yaml", *BERLIN, "--class", "a=Partition==dev")
    assert (answer.code, "--class names columns of a job table" in answer.err) == (2, True)


def test_classes_may_have_a_delay_and_sites_of_their_own(noonward: CommandLine, files: None) -> None:
    table = pl.read_csv("jobs.csv").with_columns(partition=pl.Series(["dev", "gpu", "gpu", "gpu"] * 24))
    table.write_csv("log.csv")
    words = ["mine.yaml", *BERLIN, *PARIS, "--jobs", "log.csv", "--signals", "signals.csv", "--origin", "bln=berlin",
             "--origin", "par=paris", "--class", "interactive=partition==dev"]  # fmt: skip
    told = ["--class-slack-h", "interactive=0", "--class-sites", "interactive=paris", "--slack-h", 12]
    answer = noonward("init", *words, *told)
    assert answer.code == 0, answer.err
    scenario = load_scenario("mine.yaml")
    assert scenario.fleet.ranges == {"interactive": ("paris",), "job": ("berlin", "paris")}
    environment = build_environment(scenario)
    slack_h = environment.jobs.slack_s_J / 3600
    assert set(slack_h[environment.jobs.class_J == 0]) == {0.0}
    assert set(slack_h[environment.jobs.class_J == 1]) == {12.0}
    for more, says in (
        (["--class-slack-h", "interactiv=0"], "names the class 'interactiv', which no job"),
        (["--class-slack-h", "interactive=soon"], "'soon' is not a duration"),
        (["--class-slack-h", "3"], "'3' names no class; write CLASS=3"),
        (["--class-sites", "interactive=rome"], "--class-sites interactive: there is no site 'rome'"),
    ):
        answer = noonward("init", *words, *more, "--force")
        assert (answer.code, says in " ".join(answer.err.split())) == (2, True), answer.err


def test_the_window_ends_so_early_that_its_last_job_ends_within_the_signals(noonward: CommandLine, files: None) -> None:
    # Signals end with 6 October: 24 h of slack and half an hour of run time leave 4 October, 60 h leave 3 October.
    words = ["mine.yaml", *BERLIN, "--jobs", "jobs.csv", "--signals", "signals.csv", "--origin", "berlin", "--force"]
    for slack_h, last in ((24, "2022-10-04"), (60, "2022-10-03"), (90, "2022-10-02")):
        answer = noonward("init", *words, "--slack-h", slack_h)
        assert answer.code == 0, answer.err
        assert f"window: 2022-10-02 to {last}" in answer.out
        environment = build_environment(load_scenario("mine.yaml"))
        assert environment.drained
    answer = noonward("init", *words, "--slack-h", 200)
    assert (answer.code, "or a smaller --slack-h" in " ".join(answer.err.split())) == (2, True)


def test_days_may_be_told(noonward: CommandLine, files: None) -> None:
    words = ["--jobs", "jobs.csv", "--signals", "signals.csv", "--origin", "berlin", "--from", "2022-10-03"]
    assert noonward("init", "mine.yaml", *BERLIN, *words, "--to", "2022-10-03").code == 0
    scenario = load_scenario("mine.yaml")
    assert (str(scenario.start), scenario.window_h) == ("2022-10-03", 24)


def test_every_gpu_of_the_library_states_what_its_powers_rest_on() -> None:
    assert {"T4", "L4", "A10", "A30", "A40", "A100-40-PCIe", "A100-80-SXM", "H100-PCIe", "H100-SXM", "H200", "L40S",
            "MI300X"} <= set(gpu_library())  # fmt: skip
    for gpu in gpu_library().values():
        assert 0 < gpu.idle_w < gpu.active_w <= gpu.limit_w
        assert gpu.idle_source
        assert gpu.active_source
    assert find_gpu("NVIDIA h100 sxm").name == "H100-SXM"


def test_the_library_is_listed(noonward: CommandLine) -> None:
    assert "MI300X" in noonward("init", "--gpus").out


def test_zones_are_listed_with_those_that_need_no_files(noonward):
    rows = {line.split("│")[1].strip(): line for line in noonward("init", "--zones").out.splitlines() if "│" in line}
    assert "generated prices" in rows["DE"]
    assert "America/New_York" in rows["US-MIDA-PJM"]
    assert "generated prices" not in rows["US-MIDA-PJM"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mine.yaml"], "no site was given; give at least one: --site"),
        (["mine.yml", "--site", "berlin"], "not of the form NAME=ZONE:COUNTxGPU"),
        (["mine.yaml", "--site", "berlin=DE:A100"], "'A100' is not of the form COUNTxGPU"),
        (["mine.yaml", "--site", "berlin=DE:0xA30"], "'0xA30' is not of the form COUNTxGPU"),
        (["mine.yaml", "--site", "berlin=DE:8xA100"], "may be A100-40-PCIe, A100-80-PCIe, A100-40-SXM, A100-80-SXM"),
        (["mine.yaml", "--site", "berlin=DE:8xH300"], "'H300' is not in the library"),
        (["mine.yaml", "--site", "a b=DE:8xA30"], "site name 'a b': use letters"),
        (["mine.yaml", "--site", "berlin=GE-1:8xA30"], "zone 'GE-1' is unknown"),
        (["mine.yaml", *BERLIN, *BERLIN], "site 'berlin' stands twice"),
        (["mine.csv", *BERLIN], "cannot be the name of a scenario file"),
        (["mine.yaml", *BERLIN, "--jobs", "none.csv"], "none.csv does not exist"),
        (["mine.yaml", *BERLIN, "--jobs", "jobs.csv", "--signals", "signals.csv"], "jobs come from 'bln', 'par'"),
        (["mine.yaml", *BERLIN, "--jobs", "jobs.csv", "--origin", "bln=berlyn"], "did you mean 'berlin'"),
        (["mine.yaml", *BERLIN, "--jobs", "jobs.csv", "--origin", "berlyn"], "--origin berlyn: there is no such site"),
        (["mine.yaml", *BERLIN, "--jobs", "jobs.csv", "--origin", "a", "--origin", "b"], "names a and b for all jobs"),
        (["mine.yaml", *BERLIN, "--jobs", "undated.csv"], "has no dates (column submit_time)"),
        (["mine.yaml", *BERLIN, *PARIS, "--jobs", "placeless.csv"], "does not say where its jobs come from"),
        (["mine.yaml", "--site", "a=PL:8xA30", "--signals", "signals.csv"], "zone 'PL' has no row in signals.csv"),
        (["mine.yaml", *BERLIN, "--from", "2022-10-02", "--to", "2022-10-01"], "--to 2022-10-01 is before --from"),
        (["mine.yaml", *BERLIN, "--to", "2022-10-01"], "without --from"),
        (["mine.yaml", *BERLIN, "--jobs", "late.csv", "--signals", "signals.csv", "--origin", "berlin"],
         "jobs of 2023-10-01 to 2023-10-01 and signals of 2022-09-24 to 2022-10-07 have no day in common"),
        (["mine.yaml", *BERLIN, "--jobs", "jobs.csv", "--signals", "carbon.csv", "--origin", "berlin"],
         "DE has no price; add a file that has them"),
        (["there.yaml", *BERLIN], "there.yaml exists; choose another name, or replace it with --force"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_and_nothing_is_written(
    noonward: CommandLine, files: None, words: list[str], says: str
) -> None:
    jobs = pl.read_csv("jobs.csv")
    jobs.drop("submit_time").with_columns(arrival_s=0.0).write_csv("undated.csv")
    jobs.drop("origin").write_csv("placeless.csv")
    jobs.with_columns(submit_time=pl.lit("2023-10-01T00:00:00Z")).write_csv("late.csv")
    pl.read_csv("signals.csv").drop("price_usd_per_mwh", "is_real").write_csv("carbon.csv")
    Path("there.yaml").touch()
    before = {path.name for path in Path().iterdir()}
    answer = noonward("init", *words)
    assert answer.code == 2, answer.out
    assert answer.err.startswith("error: ")
    assert says in " ".join(answer.err.split()), answer.err
    assert {path.name for path in Path().iterdir()} == before


class Terminal(io.StringIO):
    """Standard input that is a terminal, at which a user types."""

    def isatty(self) -> bool:
        return True


def test_in_a_terminal_it_asks_for_the_sites(noonward: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["berlin", "DE", "8xA100-80-SXM", "paris", "FR", "4xH100-SXM,8xL4", ""]
    monkeypatch.setattr("sys.stdin", Terminal("\n".join(typed) + "\n"))
    answer = noonward("init", "mine.yaml")
    assert answer.code == 0, answer.err
    assert "electricity zone" in answer.out
    sites = load_scenario("mine.yaml").fleet.sites
    assert [(site.name, site.zone, site.gpus) for site in sites] == [
        ("berlin", "DE", 8),
        ("paris-h100-sxm", "FR", 4),
        ("paris-l4", "FR", 8),
    ]


def test_what_is_typed_wrong_is_one_error_and_nothing_is_written(
    noonward: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("berlin\nDE\neight\n\n"))
    answer = noonward("init", "mine.yaml")
    assert answer.code == 2
    assert "'eight' is not of the form COUNTxGPU" in answer.err
    assert not Path("mine.yaml").exists()
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    answer = noonward("init", "mine.yaml")
    assert answer.code == 2
    assert "no site was given" in answer.err


def test_the_lateness_rule_and_what_happened_are_written(noonward: CommandLine, files: None) -> None:
    table = pl.read_csv("jobs.csv").with_columns(start_time=pl.col("submit_time"), start_site=pl.lit("bln"))
    table.write_csv("log.csv")
    words = ["--jobs", "log.csv", "--signals", "signals.csv", "--origin", "bln=berlin", "--origin", "par=paris"]
    answer = noonward("init", "mine.yaml", *BERLIN, *PARIS, *words, "--late-usd-per-gpu-hour", 0.5, "--slack-h", "inf")
    assert answer.code == 0, answer.err
    scenario = load_scenario("mine.yaml")
    assert (scenario.lateness.rule, scenario.lateness.usd_per_gpu_hour) == ("wait", 0.5)
    assert (scenario.end, scenario.baseline) == ("drained", "what-happened")
    environment = build_environment(scenario)
    assert set(environment.jobs.recorded_site_J.tolist()) == {0}
    assert environment.late_until_s == environment.window_s + 24 * 3600


def test_classes_that_no_job_has_need_no_gpus_of_their_type(noonward: CommandLine, files: None) -> None:
    """Data stay in their country although one of its sites lacks a GPU type that jobs elsewhere ran on."""
    kinds = ["A100-80GB", "H100"] * 48
    table = pl.read_csv("jobs.csv").with_columns(gpu_type=pl.Series(kinds))
    table.write_csv("log.csv")
    sites = ["--site", "bln=DE:8xA100-80-SXM", "--site", "par=FR:8xH100-SXM"]
    words = ["--jobs", "log.csv", "--signals", "signals.csv", "--class", "eu=origin==bln", "--class", "us=origin==par"]
    answer = noonward("init", "mine.yaml", *sites, *words, "--class-sites", "eu=bln", "--class-sites", "us=par")
    assert answer.code == 0, answer.err
    ranges = load_scenario("mine.yaml").fleet.ranges
    assert ranges == {"eu-a100-80-sxm": ("bln",), "us-h100-sxm": ("par",)}
    refused = noonward("init", "none.yaml", *sites, *words, "--class-sites", "eu=par")
    assert "jobs of class 'eu' may run at par alone, where there is no A100-80-SXM" in refused.err


def test_what_was_chosen_is_said_and_the_next_step_compares_several_windows(noonward: CommandLine, files: None) -> None:
    words = ["--jobs", "jobs.csv", "--signals", "signals.csv", "--origin", "bln=berlin", "--origin", "par=paris"]
    out = noonward("init", "mine.yaml", *BERLIN, *PARIS, *words).out
    assert "next: noonward compare mine.yaml\n" in out  # three days: no two windows of two days
    said = " ".join(out.split())
    assert "a job may start up to 24 hours after it arrives" in said
    assert "jobs may run in any zone (DE, FR), across borders" in said
    assert "the PUE is 1.3" in said
    assert "Carbon counts at 100 USD/t (--carbon-price)." in said
    hours = [FIRST + timedelta(hours=8 * n) for n in range(24)]
    longer = {"submit_time": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours], "origin": "bln", "gpus": 1}
    pl.DataFrame({**longer, "duration_s": 1800.0}).write_csv("longer.csv")
    drawn = generate_signals(("DE", "FR"), FIRST - timedelta(days=7), 20 * 24, np.random.default_rng(0))
    write_generated_signals(drawn, Path("signals.csv"))
    words = ["--jobs", "longer.csv", "--signals", "signals.csv", "--origin", "bln=berlin"]
    out = noonward("init", "longer.yaml", *BERLIN, *PARIS, *words).out
    assert "next: noonward compare longer.yaml --windows 3\n" in out
    made = noonward("init", "made.yaml", *BERLIN, "--jobs", "jobs.csv", "--origin", "berlin").out
    assert "drawn from the statistics of the year 2022, not recorded" in " ".join(made.split())
