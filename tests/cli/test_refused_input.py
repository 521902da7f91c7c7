"""Bad input of every kind: each answered once and clearly, with exit code 2, before anything is written."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command_line import CommandLine

JOBS: dict[str, object] = {"arrival_s": [0.0, 60.0], "origin": ["north", "south"], "work": [9.0, 9.0]}
JOBS |= {"gpus_min": [1, 1], "gpus_max": [1, 1]}
JOBS |= {"class": ["fine-tuning"] * 2, "slack_s": [60.0] * 2, "data_gb": [1.0] * 2}
JOBS |= {"model_gb": [1.0] * 2, "result_gb": [1.0] * 2}
SIGNALS = "timestamp,zone,carbon_intensity_g_per_kwh,price_usd_per_mwh\n"


def text(name: str, content: str) -> Callable[[], None]:
    """Returns what writes a text file."""
    return lambda: (Path(name).write_text(content, encoding="utf-8"), None)[1]


def raw(name: str, content: bytes) -> Callable[[], None]:
    """Returns what writes a file of bytes."""
    return lambda: (Path(name).write_bytes(content), None)[1]


def jobs(name: str = "jobs.parquet", **columns: object) -> Callable[[], None]:
    """Returns what writes a job table with some columns changed."""

    def write() -> None:
        table = pl.DataFrame({**JOBS, **columns}, strict=False)
        table.write_csv(name) if name.endswith(".csv") else table.write_parquet(name)

    return write


def policy(**arrays: object) -> Callable[[], None]:
    """Returns what writes a file of arrays."""
    return lambda: np.savez("policy.npz", **{name: np.array(value) for name, value in arrays.items()})


def training(name: str, content: object) -> Callable[[], None]:
    """Returns what writes a file of a folder of training."""

    def write() -> None:
        Path("run").mkdir()
        Path("run", name).write_text(json.dumps(content), encoding="utf-8")

    return write


DEEP = "a: " + "[" * 3000 + "]" * 3000
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
POISSON = "jobs={source: poisson, rate_per_s: 1e18, median_work: 9, sigma: 0.4}"
MIXED = "jobs={source: mixed, classes: {fine-tuning: {rate_per_s: 1e18, work: {law: pareto, work_min: 1, tail: 2}}}}"
SHAPED = "jobs={source: load-shapes, cluster_gpus: 1e18}"
STREAM = "jobs={source: paper-stream, rate_per_s: 1e18}"
WIDE = "jobs={source: poisson, rate_per_s: 0.001, median_work: 9, sigma: 1e18}"
NAMED = "1 to 64 letters, digits, dots, dashes and underscores"

SCENARIOS = [
    (None, ["tiny", "--set", "window_h=9007199254740992"], "window_h: input should be less than or equal to 87600"),
    (None, ["tiny", "--set", "window_h=1e300"], "window_h: input should be a valid integer"),
    (None, ["tiny", "--set", "window_h=" + "9" * 5000], "cannot be read (Exceeds the limit"),
    (None, ["tiny", "--set", "window_h=.nan"], "window_h: input should be a finite number"),
    (None, ["tiny", "--set", "window_h=true"], "window_h"),
    (None, ["tiny", "--set", "slot_s=1e-300"], "slot_s: input should be greater than or equal to 1"),
    (None, ["tiny", "--set", "slot_s=7"], "a slot must divide the hour"),
    (None, ["tiny", "--set", "jobs.count=2147483648"], "jobs.count: input should be less than or equal to"),
    (None, ["tiny", "--set", "jobs.count=900000000"], "503 GiB of memory; at most 50,000,000 (28 GiB) are drawn"),
    (None, ["tiny", "--set", "jobs.gpus_cap=2147483648"], "jobs.gpus_cap: input should be less than or equal to 65536"),
    (None, ["tiny", "--set", "jobs.slack_ratio=1e18"], "a run may last 175,200 h (20 years)"),
    (None, ["tiny", "--set", "jobs.demand=.inf"], "jobs.demand: input should be a finite number"),
    (None, ["tiny", "--set", POISSON], "jobs are expected in the window, which would take some"),
    (None, ["tiny", "--set", MIXED], "lower the classes' rate_per_s"),
    (None, ["tiny", "--set", SHAPED], "lower jobs.cluster_gpus"),
    (None, ["tiny", "--set", STREAM], "lower jobs.rate_per_s"),
    (None, ["tiny", "--set", WIDE], "sigma: input should be less than or equal to 20"),
    (None, ["tiny", "--set", "network.throughput_gb_per_min=1e-300"], "throughput_gb_per_min: input should be greater"),
    (None, ["tiny", "--set", "network.latency_ms=[[0, 1], [2]]"], "rows of unequal length"),
    (None, ["tiny", "--set", "name=../../x"], NAMED),
    (None, ["tiny", "--set", "name=/tmp/x"], NAMED),
    (None, ["tiny", "--set", "name=''"], NAMED),
    (None, ["tiny", "--set", "name=" + "x" * 65], NAMED),
    (None, ["tiny", "--set", "fleet.sites.²=3"], "positions 0 to 1"),
    (None, ["tiny", "--set", "fleet.sites.-1.gpus=3"], "positions 0 to 1"),
    (None, ["tiny", "--set", "a." * 3000 + "a=1"], "a: unknown key"),
    (None, ["tiny", "--set", "x=" + "[" * 3000], "nested too deeply"),
    (None, ["tiny", "--set", "fleet.sites.0.timezone=../../etc/passwd"], "IANA name"),
    (None, ["tiny", "--set", "economics={a: 1, a: 2}"], "the key 'a' stands twice"),
    (text("s.yaml", DEEP), ["s.yaml"], "nested too deeply; use at most 100 levels"),
    (text("s.yaml", "\n".join(" " * n + "a:" for n in range(3000))), ["s.yaml"], "nested too deeply"),
    (text("s.yaml", "? [a, b]\n: 1\n"), ["s.yaml"], "line 1, column 3: the key ['a', 'b'] is no text"),
    (text("s.yaml", "extends: tiny\n1: 2\n"), ["s.yaml"], "line 2, column 1: the key 1 is no text"),
    (text("s.yaml", "a: &x [*x]\n"), ["s.yaml"], "line 1, column 4: the value holds itself"),
    (text("s.yaml", BOMB), ["s.yaml"], "unfold to more than 1,000,000 values"),
    (text("s.yaml", "!!python/object/apply:os.abort []\n"), ["s.yaml"], "a tag ('!...') is not allowed"),
    (text("s.yaml", "extends: tiny\nname: 2022-99-99\n"), ["s.yaml"], "month must be in 1..12"),
    (text("s.yaml", "a: 1\n---\nb: 2\n"), ["s.yaml"], "a second document begins"),
    (text("s.yaml", ""), ["s.yaml"], "holds no mapping"),
    (text("s.yaml", "extends: [tiny]\n"), ["s.yaml"], "extends the unknown scenario ['tiny']"),
    (raw("s.yaml", b"\xff\xfe\x00"), ["s.yaml"], "is not UTF-8 text"),
    (lambda: Path("s.yaml").mkdir(), ["s.yaml"], "s.yaml does not exist"),
]
TABLES = [
    (jobs(gpus_max=[10**9, 1]), "jobs.parquet", "gpus_max"),
    (jobs(gpus_max=[2**40, 1]), "jobs.parquet", "gpus_max"),
    (jobs(work=[float("inf"), 1.0]), "jobs.parquet", "'work': the value inf is infinite"),
    (jobs(work=["9", "x"]), "jobs.parquet", "'work': the value 'x' is not a number"),
    (jobs(work=[[9.0], [9.0]]), "jobs.parquet", "holds values of type List"),
    (jobs(data_gb=[-1.0, 1.0]), "jobs.parquet", "'data_gb'"),
    (jobs(slack_s=[1e300, 1.0]), "jobs.parquet", "a run may last 175,200 h (20 years)"),
    (jobs(origin=[1, 2]), "jobs.parquet", "ingress point"),
    (jobs(arrival_s=[0.0, float("nan")]), "jobs.parquet", "'arrival_s'"),
    (raw("jobs.parquet", b"PAR1"), "jobs.parquet", "jobs.parquet: its columns cannot be read: parquet"),
    (raw("jobs.csv", b"arrival_s,origin\n\xff,\xfe\n"), "jobs.csv", "jobs.csv"),
    (raw("jobs.csv", b"\x00\x01\x02"), "jobs.csv", "jobs.csv"),
    (text("jobs.csv", "origin,arrival_s\n"), "jobs.csv", "jobs.csv"),
    (text("jobs.xlsx", "origin"), "jobs.xlsx", "must be one of .csv, .parquet"),
    (lambda: Path("jobs.csv").mkdir(), "jobs.csv", "jobs.csv"),
]
SIGNAL_FILES = [
    (text("s.csv", SIGNALS + "2022-01-01T00:00:00Z,SG,-1,1\n"), "s.csv", "at least 0"),
    (text("s.csv", SIGNALS + "2022-01-01T00:00:00Z,SG,inf,1\n"), "s.csv", "s.csv"),
    (text("s.csv", SIGNALS + "9999999-01-01T00:00:00Z,SG,1,1\n"), "s.csv", "timestamp"),
    (text("s.csv", SIGNALS + "1000-01-01T00:00:00Z,SG,1,1\n3000-01-01T00:00:00Z,SG,1,1\n"), "s.csv", "s.csv"),
    (text("s.csv", SIGNALS), "s.csv", "s.csv"),
    (text("s.csv", "a,b\n1\n1,2,3\n"), "s.csv", "s.csv"),
    (raw("s.csv", b"\xff\xfe\x00\n"), "s.csv", "s.csv"),
    (raw("s.parquet", b"PAR1xxxxPAR1"), "s.parquet", "s.parquet"),
]
POLICIES = [
    (policy(meta=3), "policy.npz"),
    (policy(meta="[1, 2]"), "policy.npz"),
    (policy(meta="null"), "policy.npz"),
    (policy(meta="{"), "policy.npz"),
    (policy(meta="[" * 5000), "policy.npz"),
    (policy(meta=["{}", "{}"]), "policy.npz"),
    (policy(meta='{"format": 1, "sites": 3, "observation": 3, "algorithm": []}'), "policy.npz"),
    (policy(meta='{"format": "x"}'), "policy.npz"),
    (policy(weight_0=[1.0]), "policy.npz"),
    (raw("policy.npz", b"PK\x03\x04"), "policy.npz"),
    (raw("policy.npz", b""), "policy.npz"),
    (lambda: Path("policy.npz").mkdir(), "policy.npz"),
]
PLACES = [
    (["compare", "tiny", "--out", "q4.csv"], "q4.csv looks like a file, but a folder is meant"),
    (["simulate", "tiny", "--policy", "random", "--out", "/proc/x"], "/proc/x cannot be written"),
    (["capacity-plan", "load-shaping", "--out", "taken"], "taken is a file, not a folder"),
    (["data", "generate", "tiny", "--out", "taken/below"], "taken is a file, not a folder"),
    (["train", "tiny", "--out", "q4.npz"], "looks like a file"),
    (["reproduce", "dvfs-training", "--out", "q4.html"], "looks like a file"),
]


def named(value: object) -> str | None:
    """Returns the name of a case: the start of what its message says."""
    return value[:40] if isinstance(value, str) else ""


def refused(noonward: CommandLine, words: list[str], says: str) -> None:
    """Asserts that a command is refused with one message, and leaves no file that was not there."""
    before = sorted(path for path in Path().rglob("*"))
    answer = noonward(*words)
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.startswith("error: "), answer.err
    assert answer.err.count("error: ") == 1
    assert says in answer.err
    assert len(answer.err) < 1500
    assert sorted(path for path in Path().rglob("*")) == before


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("make", "words", "says"), SCENARIOS, ids=named)
def test_scenarios(noonward: CommandLine, make: Callable[[], None] | None, words: list[str], says: str) -> None:
    if make is not None:
        make()
    refused(noonward, ["simulate", *words, "--policy", "local-fcfs"], says)


@pytest.mark.parametrize(("make", "file", "says"), TABLES, ids=named)
def test_job_files(noonward: CommandLine, make: Callable[[], None], file: str, says: str) -> None:
    make()
    refused(noonward, ["simulate", "tiny", "--policy", "local-fcfs", "--jobs", file], says)


@pytest.mark.parametrize(("make", "file", "says"), SIGNAL_FILES, ids=named)
def test_signal_files(noonward: CommandLine, make: Callable[[], None], file: str, says: str) -> None:
    make()
    refused(noonward, ["simulate", "tiny", "--policy", "local-fcfs", "--signals", file], says)


@pytest.mark.parametrize(("make", "file"), POLICIES)
def test_policy_files(noonward: CommandLine, make: Callable[[], None], file: str) -> None:
    make()
    refused(noonward, ["simulate", "tiny", "--policy", file], file)


@pytest.mark.parametrize("content", [3, [], {}, {"algorithm": 3}, None, {"sources": [3]}])
def test_configs_of_training(noonward: CommandLine, content: object) -> None:
    training("config.json", content)()
    refused(noonward, ["train", "--resume", "run"], "config.json is damaged")


@pytest.mark.parametrize(("words", "says"), PLACES, ids=named)
def test_places_where_nothing_can_be_written(noonward: CommandLine, words: list[str], says: str) -> None:
    Path("taken").write_text("")
    refused(noonward, words, says)


def test_a_job_table_is_the_one_that_the_cases_break(noonward: CommandLine) -> None:
    jobs()()
    answer = noonward("simulate", "tiny", "--policy", "local-fcfs", "--jobs", "jobs.parquet")
    assert answer.code == 0, answer.err


TYPO = """from noonward import Needs, Scheduler


class Typo(Scheduler):
    needs = Needs(protocols=("each-slot",))

    def decide(self, view, answers):
        for here, job in view.asked():
            answers.sned(here, 0)
"""


def test_a_typo_inside_a_scheduler_is_shown_with_its_line(noonward: CommandLine) -> None:
    Path("with_a_typo.py").write_text(TYPO, encoding="utf-8")
    command = ("compare", "tiny", "-n", 1, "--policies", "local-fcfs,with_a_typo:Typo", "--no-report")
    answer = noonward(*command)
    assert answer.code == 2
    assert "with_a_typo.py, line 9, in decide: answers.sned(here, 0)" in answer.err
    assert "AttributeError: " in answer.err
    assert "Traceback" not in answer.err
    assert list(Path("runs").rglob("with_a_typo*/000/*")) == []
    shown = noonward(*command, "--traceback")
    assert shown.code == 2
    assert "Traceback (most recent call last)" in shown.err
