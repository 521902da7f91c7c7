"""Sixty bad inputs of the commands that take one's own data: each one clear error, exit code 2, nothing written."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command_line import CommandLine
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals

FIRST = datetime(2022, 10, 1, tzinfo=UTC)
SACCT = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES|Cluster|State\n"
RAN = "1|2022-10-02T08:00:00|2022-10-02T09:00:00|2022-10-02T10:00:00|3600|gres/gpu=2|bln|COMPLETED\n"
PRICES = "timestamp,zone,price_usd_per_mwh\n2022-10-02T00:00:00Z,DE,50\n"
TABLE = "submit_time,origin,gpus,duration_s\n2022-10-02T00:00:00Z,berlin,2,600\n"
FLEET = ["--site", "berlin=DE:8xA100-80-SXM"]
OWN = [*FLEET, "--jobs", "jobs.csv", "--signals", "signals.csv"]
MISSING = "there is no file nowhere.csv"
GONE = "nowhere.csv does not exist"


@pytest.fixture
def own(noonward: CommandLine) -> CommandLine:
    """Four days of jobs in Berlin with starts, and the signals around them."""
    hours = [FIRST + timedelta(hours=hour) for hour in range(96)]
    times = [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours]
    table = {"submit_time": times, "start_time": times, "origin": "berlin", "gpus": 1, "duration_s": 1800.0}
    pl.DataFrame({"submit_time": times}).with_columns(
        **{name: pl.lit(value) if not isinstance(value, list) else pl.Series(value) for name, value in table.items()}
    ).write_csv("jobs.csv")
    drawn = generate_signals(("DE",), FIRST - timedelta(days=7), 13 * 24, np.random.default_rng(0))
    write_generated_signals(drawn, Path("signals.csv"))
    return noonward


def text(content: str | bytes, name: str = "bad.csv") -> Callable[[], None]:
    """Returns what writes a file."""
    data = content if isinstance(content, bytes) else content.encode()
    return lambda: (Path(name).write_bytes(data), None)[1]


def changed(column: str, value: object) -> Callable[[], None]:
    """Returns what writes the job table with one value changed in its third row."""

    def write() -> None:
        table = pl.read_csv("jobs.csv", infer_schema=False)
        values = table[column].to_list()
        values[2] = value
        table.with_columns(pl.Series(column, values, dtype=pl.String)).write_csv("jobs.csv")

    return write


def without(column: str) -> Callable[[], None]:
    """Returns what writes the job table without a column."""
    return lambda: pl.read_csv("jobs.csv", infer_schema=False).drop(column).write_csv("jobs.csv")


BERLIN = ["import", "bad.csv", "--timezone", "Europe/Berlin"]
NYISO = "Time Stamp,Name,PTID,LBMP ($/MWHr),Marginal Cost Losses ($/MWHr),Marginal Cost Congestion ($/MWHr)\n"
IMPORT = [
    (None, ["import", "nowhere.csv"], MISSING),
    (text(""), ["import", "bad.csv"], "empty"),
    (text("a,b\n1,2\n"), ["import", "bad.csv"], "format"),
    (text(SACCT), BERLIN, "header and no job"),
    (text(SACCT + RAN), ["import", "bad.csv"], "--timezone"),
    (text(SACCT + RAN), ["import", "bad.csv", "--timezone", "Mars/Base"], "Mars/Base"),
    (text(SACCT + RAN.replace("10-02T08", "13-02T08")), BERLIN, "not a valid date or time"),
    (text(SACCT + RAN.replace("3600", "an hour")), BERLIN, "an hour"),
    (text(SACCT + RAN.replace("gres/gpu=2", "cpu=2")), BERLIN, "no job with GPUs that ran"),
    (text(SACCT.replace("|AllocTRES", "|Tres") + RAN), BERLIN, "AllocTRES"),
    (text(SACCT + RAN.replace("1|", "1.batch|", 1)), BERLIN, "only steps"),
    (text(SACCT + RAN.strip() + "|more\n"), BERLIN, "9 fields"),
    (text(SACCT + RAN), [*BERLIN, "--origin", "xyz=berlin"], "'xyz'"),
    (text(SACCT + RAN), [*BERLIN, "--format", "slrum"], "did you mean 'slurm'"),
    (text(SACCT + RAN.replace("T08:00:00", "T02:30:00").replace("10-02", "03-27")), BERLIN, "skips that hour"),
    (text('{"apiVersion": "v1", "kind": "List", "items": ['), ["import", "bad.csv"], "not valid JSON"),
    (text('{"apiVersion": "v1", "kind": "List", "items": []}'), ["import", "bad.csv"], "holds no Job"),
    (text("submitted,gpus,duration_h\n2022-10-02T00:00Z,1.5,2\n"), ["import", "bad.csv"], "whole number of GPUs"),
    (text("submitted,gpus,duration_h\n2022-10-02T00:00Z,1,-2\n"), ["import", "bad.csv"], "negative"),
    (text("submitted,gpus,duration_h\n2022-10-02T00:00Z,1,2\n"), ["import", "bad.csv", "--column", "gpu=n"], "'gpu'"),
    (text("time,zone,price [EUR/MWh]\n2022-10-02T00:00Z,DE,50\n"), ["import", "bad.csv"], "--fx"),
    (text("time,zone,price [EUR/MWh]\n2022-10-02T00:00Z,DE,50\n"), ["import", "bad.csv", "--fx", "EUR=-1"], "-1"),
    (text("time,zone,price [EUR/MWh]\n2022-10-02T00:00Z,DE,50\n"), ["import", "bad.csv", "--fx", "EURO"], "EURO"),
    (text("time,zone,price\n2022-10-02T00:00Z,DE,50\n"), ["import", "bad.csv", "--price-unit", "EUR/kg"], "EUR/kg"),
    (text("time,zone,carbon\n2022-10-02T00:00Z,DE,50\n"), ["import", "bad.csv", "--carbon-unit", "t"], "'t'"),
    (text("time,zone,price\n2022-10-02T00:00Z,DE,fifty\n"), ["import", "bad.csv", "--price-unit", "USD/MWh"], "fifty"),
    (text(PRICES), ["import", "bad.csv", "--decimal", ";"], "--decimal"),
    (text(PRICES), ["import", "bad.csv", "--date-order", "ymd"], "--date-order"),
    (text(PRICES), ["import", "bad.csv", "--fill-gaps", "100"], "--fill-gaps"),
    (text(PRICES), ["import", "bad.csv", "--encoding", "latin-99"], "latin-99"),
    (text(b"\xff\xfe\x00"), ["import", "bad.csv"], "bad.csv"),
    (text(NYISO + "10/02/2022 00:00,CENTRL,61754,x,0,0\n"), ["import", "bad.csv"], "'x'"),
]
INIT = [
    (None, ["init", "mine.txt", *FLEET], "name it like mine.yaml"),
    (None, ["init", "mine.yaml"], "no site was given"),
    (None, ["init", "mine.yaml", "--site", "berlin"], "NAME=ZONE:COUNTxGPU"),
    (None, ["init", "mine.yaml", "--site", "berlin=DE:0xA100-80-SXM"], "COUNTxGPU"),
    (None, ["init", "mine.yaml", "--site", "berlin=DE:8xA1000"], "A1000"),
    (None, ["init", "mine.yaml", "--site", "berlin=Germany:8xL4"], "'Germany' is unknown"),
    (None, ["init", "mine.yaml", *FLEET, *FLEET], "stands twice"),
    (None, ["init", "mine.yaml", *FLEET, "--jobs", "nowhere.csv"], GONE),
    (without("submit_time"), ["init", "mine.yaml", *OWN], "has no dates"),
    (changed("origin", "paris"), ["init", "mine.yaml", *OWN], "'paris', which is no site"),
    (None, ["init", "mine.yaml", *OWN, "--origin", "berlin=rome"], "'rome'"),
    (None, ["init", "mine.yaml", *OWN, "--from", "2022-10-03", "--to", "2022-10-02"], "is before --from"),
    (None, ["init", "mine.yaml", *OWN, "--to", "2022-10-02"], "without --from"),
    (None, ["init", "mine.yaml", *OWN, "--from", "2023-10-03"], "cover 2022-09-24"),
    (None, ["init", "mine.yaml", *OWN, "--slack-h", "-1"], "--slack-h"),
    (None, ["init", "mine.yaml", *OWN, "--late-price", "-1"], "--late-price"),
    (changed("gpus", "64"), ["init", "mine.yaml", *OWN, "--pue", "0.5"], "--pue"),
]
MINE = "mine.yaml"
USED = [
    (changed("start_time", "soon"), ["compare", MINE], "'soon'"),
    (changed("submit_time", None), ["compare", MINE], "give the time of submission"),
    (changed("duration_s", "0"), ["compare", MINE], "above 0"),
    (changed("gpus", "1.5"), ["compare", MINE], "whole number of GPUs"),
    (None, ["compare", MINE, "--from", "2022-10-99"], "--from"),
    (None, ["compare", MINE, "--from", "2022-12-01"], "2022-12-01"),
    (None, ["compare", MINE, "--to", "2022-10-03"], "without --from"),
    (None, ["compare", MINE, "--set", "lateness={rule: late}"], "lateness.rule"),
    (None, ["compare", MINE, "--set", "lateness={rule: drop, usd_per_gpu_hour: 1}"], "go with rule wait"),
    (None, ["compare", MINE, "--set", "lateness={rule: wait, usd_per_gpu_hour: -1}"], "usd_per_gpu_hour"),
    (None, ["compare", MINE, "--history", "nowhere.csv"], GONE),
    (without("start_time"), ["compare", MINE, "--policies", "what-happened,local-fcfs"], "column 'start_time'"),
    (None, ["compare", MINE, "--policies", "bid-price(forecast=learned, net=mine)"], "no forecast named 'mine'"),
    (None, ["data", "check", "nowhere.csv", "--scenario", MINE], MISSING),
    (changed("origin", "paris"), ["data", "check", "jobs.csv", "--scenario", MINE], "'paris'"),
    (text(PRICES.replace("DE", "FR")), ["data", "check", "bad.csv", "--scenario", MINE], "DE"),
    (text(PRICES.replace("50", "many")), ["data", "check", "bad.csv"], "many"),
]
FORECAST = [
    (None, ["fit-forecast", "my net", "--signals", "signals.csv"], "'my net'"),
    (None, ["fit-forecast", "7", "--signals", "signals.csv"], "'7'"),
    (None, ["fit-forecast", "mine", "--signals", "nowhere.csv"], GONE),
    (None, ["fit-forecast", "mine", "--signals", "signals.csv"], "needs 730 days of hours"),
    (None, ["fit-forecast", "mine", "--signals", "signals.csv", "--zones", "FR"], "FR"),
    (None, ["fit-forecast", "mine", "--signals", "signals.csv", "--zones", ","], "names no zone"),
]
BAD = [*IMPORT, *INIT, *USED, *FORECAST]


def test_there_are_sixty_of_them() -> None:
    assert len(BAD) >= 60
    assert len({(str(command), said) for _, command, said in BAD}) >= 60


@pytest.mark.parametrize(("prepare", "command", "said"), BAD)
def test_bad_data_is_one_error_and_nothing_is_written(
    own: CommandLine, prepare: Callable[[], None] | None, command: list[str], said: str
) -> None:
    if command[0] == "fit-forecast":
        pytest.importorskip("torch")
    if MINE in command and command[0] != "init":
        made = own("init", MINE, *OWN)
        assert made.code == 0, made.err
    if prepare is not None:
        prepare()
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    out = ["--out", "made"] if command[0] in ("import", "compare") else []
    answer = own(*command, *out)
    assert answer.code == 2, answer.out + answer.err
    assert said in answer.err, answer.err
    assert "Traceback" not in answer.err
    errors = [line for line in answer.err.splitlines() if line.lower().startswith("error")]
    assert len(errors) == 1, answer.err
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert after == before
