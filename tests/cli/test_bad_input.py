"""A mistake of the user: exit code 2, a message with what, where, what is allowed and what to do; nothing written."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Answer, CommandLine

Write = Callable[[str], Path]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Job table, signals and scenario file that are in order; each test breaks one thing."""
    from noonward.data.environments import build_environment
    from noonward.data.jobs.load import write_job_table
    from noonward.data.scenarios.load import load_scenario
    from noonward.data.signals.load import write_generated_signals

    folder = tmp_path_factory.mktemp("good")
    environment = build_environment(load_scenario("tiny"))
    write_job_table(environment.jobs, environment.fleet, folder / "jobs.csv")
    assert environment.signals is not None
    write_generated_signals(environment.signals, folder / "signals.csv")
    return folder


def refused(answer: Answer, *says: str) -> None:
    """Asserts that a command was refused with one message that says all of some things."""
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert "\n\n" not in answer.err.strip()
    assert "Traceback" not in answer.err
    for text in says:
        assert text in answer.err
    assert not Path("runs").exists()


def with_job(good: Path, **changes: str) -> Path:
    """Writes the job table with some columns of its second job changed."""
    with (good / "jobs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[1] |= changes
    with Path("jobs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return Path("jobs.csv")


def with_lines(good: Path, change: Callable[[str], str | None]) -> Path:
    """Writes the signals with every line changed, or left out where the change is None."""
    head, *lines = (good / "signals.csv").read_text().splitlines()
    changed = [line for line in map(change, lines) if line is not None]
    Path("signals.csv").write_text("\n".join([head, *changed]) + "\n")
    return Path("signals.csv")


def test_the_files_that_the_tests_break_are_in_order(noonward: CommandLine, good: Path) -> None:
    jobs, signals = good / "jobs.csv", good / "signals.csv"
    answer = noonward("simulate", "tiny", "--policy", "local-fcfs", "--jobs", jobs, "--signals", signals)
    assert answer.code == 0
    assert Path("runs").is_dir()


@pytest.mark.parametrize("content", ["header", ""])
def test_empty_job_file(noonward: CommandLine, good: Path, content: str) -> None:
    head = (good / "jobs.csv").read_text().splitlines()[0] + "\n"
    Path("jobs.csv").write_text(head if content == "header" else "")
    refused(noonward("compare", "tiny", "--jobs", "jobs.csv"), "jobs.csv", "give a file" if content else "repair")


def test_job_larger_than_every_site(noonward: CommandLine, good: Path) -> None:
    jobs = with_job(good, gpus_min="99", gpus_max="99")
    refused(noonward("compare", "tiny", "--jobs", jobs), "row 1", "99 GPUs", "largest site has 8", "enlarge a site")


def test_job_with_no_gpu(noonward: CommandLine, good: Path) -> None:
    jobs = with_job(good, gpus_min="0", gpus_max="0")
    refused(noonward("compare", "tiny", "--jobs", jobs), "jobs.csv, line 3", "gpus_min", "'0'", "at least 1")


def test_job_of_negative_duration(noonward: CommandLine, good: Path) -> None:
    jobs = with_job(good, work="-5")
    refused(noonward("compare", "tiny", "--jobs", jobs), "jobs.csv, line 3", "'work'", "'-5'", "above 0")


def test_job_from_an_unknown_place(noonward: CommandLine, good: Path) -> None:
    jobs = with_job(good, origin="nort")
    refused(noonward("compare", "tiny", "--jobs", jobs), "jobs.csv, line 3", "'nort'", "did you mean 'north'?")


def test_job_after_the_window(noonward: CommandLine, good: Path) -> None:
    jobs = with_job(good, arrival_s="99999")
    refused(noonward("compare", "tiny", "--jobs", jobs), "window of 12 h", "99999", "below 43200 s", "raise window_h")


def test_zone_without_signal(noonward: CommandLine, good: Path) -> None:
    signals = with_lines(good, lambda line: None if ",SG," in line else line)
    refused(noonward("compare", "tiny", "--signals", signals), "'SG'", "signals.csv", "known: CA-ON")


def test_zone_without_statistics(noonward: CommandLine) -> None:
    settings = ["--set", "fleet.sites.1.zone=ATLANTIS", "--set", "fleet.sites.1.timezone=UTC"]
    refused(noonward("compare", "tiny", *settings), "'ATLANTIS'", "calibrated zones: AU-SA", "give signal files")


def test_horizon_past_the_signals(noonward: CommandLine, good: Path) -> None:
    signals = with_lines(good, lambda line: line if line < "2022-12-24T12" else None)
    answer = noonward("compare", "tiny", "--signals", signals)
    refused(answer, "signals.csv", "no window of 12 hours", "2022-12-23 to 2022-12-24", "shorten window_h")


def test_nan_price_within_the_only_window(noonward: CommandLine, good: Path) -> None:
    def unknown(line: str) -> str:
        time, zone, carbon, price, real = line.split(",")
        return f"{time},{zone},{carbon},{'nan' if (time, zone) == ('2022-12-25T03:00:00Z', 'SG') else price},{real}"

    signals = with_lines(good, unknown)
    answer = noonward("compare", "tiny", "--signals", signals)
    refused(answer, "SG", "signals.csv", "every price and carbon intensity is known", "Complete the signals")


@pytest.mark.parametrize(("stamp", "says"), [("", "has no time zone"), ("+02:00", "non-UTC offset")])
def test_time_stamps_that_are_not_utc(noonward: CommandLine, good: Path, stamp: str, says: str) -> None:
    signals = with_lines(good, lambda line: line.replace("Z,", f"{stamp},"))
    refused(noonward("compare", "tiny", "--signals", signals), "signals.csv, line 2", "'timestamp'", says, "UTC")


def test_hour_that_stands_twice(noonward: CommandLine, good: Path) -> None:
    signals = with_lines(good, lambda line: line.replace("T05:00", "T04:00"))
    refused(noonward("compare", "tiny", "--signals", signals), "signals.csv, lines 6 and 7", "twice", "keep one row")


def test_site_with_no_gpu(noonward: CommandLine) -> None:
    refused(noonward("compare", "tiny", "--set", "fleet.sites.0.gpus=0"), "fleet.sites.0.gpus", "or equal to 1", "0")


def test_site_that_stands_twice(noonward: CommandLine) -> None:
    answer = noonward("compare", "tiny", "--set", "fleet.sites.1.name=north")
    refused(answer, "site name 'north' stands twice", "give every site a name of its own")


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("economics:", "econmics:", "econmics: unknown key; did you mean 'economics'?"),
        ("  count: 30", "  cuont: 30", "unknown key; did you mean 'count'?"),
        ("window_h: 12", "window_h: twelve", "window_h: input should be a valid integer"),
        ("window_h: 12", "window_h: [12", "is not valid YAML"),
    ],
)
def test_typo_in_a_scenario_file(noonward: CommandLine, right: str, wrong: str, says: str) -> None:
    shown = noonward("scenario", "show", "tiny").out
    assert right in shown
    Path("mine.yaml").write_text(shown.replace(right, wrong))
    refused(noonward("compare", "mine.yaml"), "mine.yaml", says)


def test_unknown_scenario(noonward: CommandLine) -> None:
    refused(
        noonward("compare", "tyni"),
        "unknown scenario 'tyni'",
        "known: dvfs-mixed, dvfs-training, edge-inference, edge-inference-real, edge-inference-reference, fine-tuning, "
        "load-shaping, tiny",
        ".yaml",
    )


def test_unknown_policy(noonward: CommandLine) -> None:
    answer = noonward("compare", "tiny", "--policies", "local-fcsf")
    refused(answer, "unknown policy 'local-fcsf'", "did you mean 'local-fcfs'?", "module:Class")


def test_policy_that_cannot_be_loaded(noonward: CommandLine) -> None:
    refused(noonward("simulate", "tiny", "--policy", "nowhere:Mine"), "'nowhere:Mine'", "importable module:Class")


def test_policy_of_the_other_protocol(noonward: CommandLine) -> None:
    answer = noonward("simulate", "tiny", "--policy", "dp")
    refused(answer, "'dp' answers the protocols on-arrival", "'tiny' asks each-slot", "choose another policy")


def test_policy_that_stands_twice(noonward: CommandLine) -> None:
    refused(noonward("compare", "tiny", "--policies", "random,random"), "stands twice", "name each once")


def test_unknown_protocol(noonward: CommandLine) -> None:
    refused(noonward("policies", "--protocol", "daily"), "'daily'", "each-slot, on-arrival")


def test_unknown_role(noonward: CommandLine) -> None:
    refused(noonward("policies", "--role", "planers"), "unknown role 'planers'", "did you mean 'planner'?")


def test_policy_named_twice_in_two_ways(noonward: CommandLine) -> None:
    answer = noonward("compare", "dvfs-training", "--policies", "dp,dp(clock=0.6)")
    refused(answer, "a policy stands twice", "name each once")


@pytest.mark.parametrize("key", ["policies", "baseline"])
@pytest.mark.parametrize("name", ["os:abort", "evilmod:Policy"])
@pytest.mark.parametrize("command", [("scenario", "check"), ("compare",)])
def test_a_scenario_file_cannot_name_code(noonward: CommandLine, key: str, name: str, command: tuple[str, ...]) -> None:
    """``os:abort`` would end this process; ``evilmod`` would leave a file."""
    Path("evilmod.py").write_text("open('ran', 'w').close()\n", encoding="utf-8")
    value = f"[local-fcfs, '{name}']" if key == "policies" else f"'{name}'"
    Path("evil.yaml").write_text(f"extends: tiny\nname: evil\n{key}: {value}\n", encoding="utf-8")
    answer = noonward(*command, "evil.yaml")
    refused(
        answer,
        f"scenario 'evil': {key}: policy '{name}' names code or a file",
        "a file may name registered policies only",
    )
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "tiny", "--jobs"),
        ("compare", "tiny", "--signals"),
        ("bound", "tiny", "--jobs"),
        ("data", "check"),
    ],
)
def test_missing_file(noonward: CommandLine, command: tuple[str, ...]) -> None:
    refused(noonward(*command, "nowhere.csv"), "nowhere.csv")


def test_a_gpu_type_without_classes(noonward: CommandLine) -> None:
    answer = noonward("bound", "tiny", "--set", "fleet.gpu_types.T4-class.classes={}")
    refused(answer, "fleet.gpu_types.T4-class.classes", "at least 1 item")


def test_missing_scenario_file(noonward: CommandLine) -> None:
    refused(noonward("compare", "nowhere.yaml"), "nowhere.yaml does not exist", "check the path")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("nonsense", "not of the form key.key=value"),
        ("econ.alpha=4", "did you mean 'economics'?"),
        ("fleet.sites.7.gpus=3", "positions 0 to 1, not '7'"),
        ("window_h.x=3", "holds a single value"),
        ("economics.carbon_usd_per_t=[", "not valid YAML"),
        ("economics.carbon_usd_per_t=-1", "greater than or equal to 0"),
    ],
)
def test_bad_setting(noonward: CommandLine, setting: str, says: str) -> None:
    refused(noonward("compare", "tiny", "--set", setting), says, setting.split("=")[0].split(".")[0])


@pytest.mark.parametrize(
    "arguments",
    [("compare", "tiny", "-n", "0"), ("compare", "tiny", "--seed", "-1"), ("simulate", "tiny"), ("nonsense",)],
)
def test_wrong_usage_says_how_to_get_help(noonward: CommandLine, arguments: tuple[str, ...]) -> None:
    answer = noonward(*arguments)
    assert answer.code == 2
    assert "--help" in answer.err
    assert "Traceback" not in answer.err
    assert not Path("runs").exists()


def test_scenario_without_a_known_bound(noonward: CommandLine) -> None:
    answer = noonward("bound", "tiny", "-n", 1, "--set", "economics=null")
    refused(answer, "no bound is known for scenario 'tiny'", "needs economics")


def test_a_job_table_of_another_fleet_says_how_to_name_its_scenario(noonward: CommandLine) -> None:
    assert noonward("data", "generate", "tiny", "--out", "made").code == 0
    refused(noonward("data", "check", "made/jobs.csv"), "'south'", "--scenario fleet.yaml")
    assert noonward("data", "check", "made/jobs.csv", "--scenario", "tiny").code == 0


def test_lists_that_name_nothing_are_refused(noonward):
    refused(noonward("compare", "tiny", "--policies", ""), "no policy to compare", "--policies A,B")
    refused(noonward("bound", "tiny", "--freedom", ""), "no freedom is named", "none, suspend")
