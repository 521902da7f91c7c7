"""``noonward import``: what it prints and writes, and what it refuses."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command_line import CommandLine
from noonward.data.exchange_rates import read_rates
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.errors import DataError

MAPS = (
    "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),"
    "Carbon Intensity gCO₂eq/kWh (LCA),Data Source,Data Estimated\n"
    "2023-10-28 23:00:00,G,G,DE,1,300,a,true\n2023-10-29 00:00:00,G,G,DE,1,310,a,false\n"
)
ENTSOE = (
    '"MTU (CET/CEST)","Day-ahead Price [EUR/MWh]","Currency","BZN|DE-LU"\n'
    '"29.10.2023 01:00 - 29.10.2023 02:00","50","EUR"\n"29.10.2023 02:00 - 29.10.2023 03:00","","EUR"\n'
)
SACCT = (
    "JobID|Submit|Start|End|ElapsedRaw|AllocTRES|Cluster\n"
    "1|2023-10-29T01:30:00|2023-10-29T01:30:00|2023-10-29T01:59:00|1740|gres/gpu=2|bln\n"
    "2|2023-10-29T01:40:00|Unknown|Unknown|0||bln\n"
)


@pytest.fixture
def files(noonward: CommandLine) -> list[str]:
    """Carbon, prices and jobs in their publishers' formats."""
    for name, text in (("DE.csv", MAPS), ("prices.csv", ENTSOE), ("sacct.txt", SACCT)):
        Path(name).write_text(text, encoding="utf-8")
    return ["DE.csv", "prices.csv", "sacct.txt"]


def test_files_of_several_publishers_become_one_of_each_kind(noonward: CommandLine, files: list[str]) -> None:
    answer = noonward("import", *files, "--timezone", "Europe/Berlin", "--fx", "EUR=1.1", "--out", "mine")
    assert answer.code == 0, answer.err
    signals = pl.read_csv("mine/signals.csv", infer_schema=False)
    assert signals.rows() == [
        ("2023-10-28T23:00:00Z", "DE", "300.0", "55.0", "true"),
        ("2023-10-29T00:00:00Z", "DE", "310.0", None, "false"),
    ]
    jobs = pl.read_csv("mine/jobs.csv")
    assert jobs.select("submit_time", "origin", "gpus", "duration_s").rows() == [
        ("2023-10-28T23:30:00Z", "bln", 2, 1740.0)
    ]
    accounts = json.loads(Path("mine/import.json").read_text())
    assert [(each["file"], each["rows_in"], each["rows_out"]) for each in accounts] == [
        ("DE.csv", 2, 2), ("prices.csv", 2, 1), ("sacct.txt", 2, 1),
    ]  # fmt: skip
    assert "prices in EUR became USD at 1.1 USD for one EUR" in answer.out
    assert "dropped 1: no GPU" in answer.out
    assert noonward("data", "check", "mine/signals.csv").code == 0


def test_an_import_may_hide_who_asked_and_say_what_class_a_job_is_of(noonward: CommandLine) -> None:
    row = "{}|2023-10-29T01:30:00|2023-10-29T01:30:00|2023-10-29T01:59:00|1740|gres/gpu=2|{}|ada|nlp\n"
    text = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES|Partition|User|Account\n"
    Path("sacct.txt").write_text(text + row.format(1, "dev") + row.format(2, "gpu"))
    words = ["import", "sacct.txt", "--timezone", "UTC", "--class", "interactive=Partition==dev"]
    answer = noonward(*words, "--anonymous", "--out", "mine")
    assert answer.code == 0, answer.err
    jobs = pl.read_csv("mine/jobs.csv", infer_schema=False)
    assert jobs["class"].to_list() == ["interactive", "job"]
    assert jobs["user"].n_unique() == jobs["team"].n_unique() == 1
    assert {"ada", "nlp", "1", "2"}.isdisjoint({*jobs["user"], *jobs["team"], *jobs["job_id"]})
    assert "check:" not in answer.out
    checked = " ".join(noonward("import", "sacct.txt", "--timezone", "UTC", "--class", "a=QOS==x|y").err.split())
    assert "has no column 'QOS'" in checked
    checked = " ".join(
        noonward("import", "sacct.txt", "--timezone", "UTC", "--class", "a=Partition==devel").out.split()
    )
    assert "check: --class a=Partition==devel fits no job; is the column the right one" in checked
    again = noonward(*words, "--anonymous", "--out", "again")
    assert again.code == 0
    assert pl.read_csv("again/jobs.csv")["user"][0] != jobs["user"][0]


def test_an_import_reads_its_own_output(noonward: CommandLine, files: list[str]) -> None:
    words = ["--timezone", "Europe/Berlin", "--fx", "EUR=1.1"]
    assert noonward("import", *files, *words, "--out", "mine").code == 0
    answer = noonward("import", "mine/signals.csv", "mine/jobs.csv", "--out", "again")
    assert answer.code == 0, answer.err
    for name in ("signals.csv", "jobs.csv"):
        again, first = (pl.read_csv(f"{folder}/{name}", infer_schema=False) for folder in ("again", "mine"))
        assert again.select(first.columns).equals(first)


def test_what_is_known_of_each_zone_is_printed(noonward: CommandLine, files: list[str]) -> None:
    lines = noonward("import", "DE.csv", "prices.csv", "--fx", "EUR=1.1").out.splitlines()
    rows = [line.replace("│", " ").replace("┃", " ").split() for line in lines if "USD/MWh" in line or "g/kWh" in line]
    assert ["DE", "price,", "USD/MWh", "2023-10-28", "23:00", "2023-10-28", "23:00", "1", "0", *["55.0"] * 3] in rows
    carbon = ["DE", "carbon,", "g/kWh", "2023-10-28", "23:00", "2023-10-29", "00:00", "2", "0"]
    assert [*carbon, "305.0", "300.0", "310.0"] in rows


def test_a_price_in_another_unit_is_checked(noonward: CommandLine) -> None:
    Path("spot.csv").write_text("timestamp,zone,price_usd_per_mwh\n2024-01-01T00:00Z,DE,0.08\n")
    assert "check: DE: the mean price is 0.08 USD/MWh; are its unit (per kWh?)" in noonward("import", "spot.csv").out


def test_every_file_may_have_a_clock_of_its_own(noonward: CommandLine) -> None:
    head = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES|Cluster\n"
    row = "1|2024-01-10T12:00:00|2024-01-10T12:00:00|2024-01-10T13:00:00|3600|gres/gpu=1|{}\n"
    for name in ("fra", "mel", "par"):
        Path(f"{name}.txt").write_text(head + row.format(name))
    words = ["--timezone", "fra.txt=Europe/Berlin", "--timezone", "mel.txt=Australia/Melbourne", "--timezone", "UTC"]
    answer = noonward("import", "fra.txt", "mel.txt", "par.txt", *words, "--out", "mine")
    assert answer.code == 0, answer.err
    jobs = pl.read_csv("mine/jobs.csv", infer_schema=False)
    assert jobs.select("origin", "submit_time").rows() == [
        ("mel", "2024-01-10T01:00:00Z"), ("fra", "2024-01-10T11:00:00Z"), ("par", "2024-01-10T12:00:00Z"),
    ]  # fmt: skip
    answer = noonward("import", "fra.txt", "--timezone", "fran.txt=Europe/Berlin")
    assert (answer.code, "names the file 'fran.txt', which is not imported; did you mean" in answer.err) == (2, True)


def test_files_of_one_name_are_told_apart_by_their_folders(noonward: CommandLine) -> None:
    for folder in ("fra", "mel"):
        Path(folder).mkdir()
        Path(folder, "sacct.txt").write_text(
            "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n"
            "1|2024-01-10T12:00:00|2024-01-10T12:00:00|2024-01-10T13:00:00|3600|gres/gpu=1\n"
        )
    logs = ("fra/sacct.txt", "mel/sacct.txt")
    words = ["--timezone", f"{logs[0]}=Europe/Berlin", "--timezone", f"{logs[1]}=Australia/Melbourne"]
    answer = noonward("import", *logs, *words, "--origin", f"{logs[1]}=mel", "--out", "mine")
    assert answer.code == 0, answer.err
    assert pl.read_csv("mine/jobs.csv", infer_schema=False).select("origin", "submit_time").rows() == [
        ("mel", "2024-01-10T01:00:00Z"), (None, "2024-01-10T11:00:00Z"),
    ]  # fmt: skip
    answer = noonward("import", *logs, "--timezone", "sacct.txt=UTC")
    assert (answer.code, "'sacct.txt' may be fra/sacct.txt or mel/sacct.txt" in answer.err) == (2, True)


def test_files_that_disagree_about_a_zone_are_said_to(noonward: CommandLine) -> None:
    rows = "timestamp,zone,price_usd_per_mwh\n2024-01-01T00:00Z,DE,{}\n2024-01-01T01:00Z,DE,60\n"
    Path("a.csv").write_text(rows.format(50))
    Path("b.csv").write_text(rows.format(5000))
    out = " ".join(noonward("import", "a.csv", "b.csv").out.split())
    assert "dropped 1: hours whose price an earlier file gives with another value, which is kept" in out
    assert "(the first: DE, 2024-01-01T00:00Z: 50 USD/MWh in a.csv, 5000 here)" in out
    assert "dropped 1: hours whose price an earlier file gives alike" in out


def test_marginal_and_average_carbon_are_not_mixed(noonward: CommandLine, files: list[str]) -> None:
    Path("X_co2_moer_2023.csv").write_text("point_time,value\n2023-10-28 23:00:00+00:00,900\n")
    answer = noonward("import", "DE.csv", "X_co2_moer_2023.csv", "--out", "mine")
    assert answer.code == 2
    assert "two kinds (DE.csv average, X_co2_moer_2023.csv marginal)" in " ".join(answer.err.split())
    assert noonward("import", "X_co2_moer_2023.csv", "--out", "mine").code == 0
    # What was imported remembers its kind.
    again = noonward("import", "DE.csv", "mine/signals.csv")
    assert (again.code, "two kinds (DE.csv average, signals.csv marginal)" in " ".join(again.err.split())) == (2, True)
    note = "carbon intensities of two kinds are mixed (DE.csv average, signals.csv marginal)"
    assert note in " ".join(noonward("data", "check", "DE.csv", "mine/signals.csv").out.split())


BAD = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n" + "".join(
    f"{n}|2024-01-10T12:00:00|{start}|2024-01-10T13:00:00|{seconds}|gres/gpu=1\n"
    for n, (start, seconds) in enumerate(
        [("2024-01-10T12:00:00", "3600"), ("soon", "3600"), ("1970-01-01T00:00:00", "1"), ("2024-01-10T12:00:00", "x")]
    )
)


def test_bad_rows_are_left_out_up_to_a_number(noonward: CommandLine) -> None:
    Path("sacct.txt").write_text(BAD + "9|too|few\n")
    words = ["import", "sacct.txt", "--timezone", "UTC"]
    assert "line 6: 3 fields, but the header names 6" in noonward(*words).err
    answer = noonward(*words, "--skip-bad", 4)
    assert answer.code == 0, answer.err
    out = " ".join(answer.out.split())
    assert "5 rows in, 1 rows out" in out
    assert "dropped 1: bad rows: 3 fields, but the header names 6 (first in line 6)" in out
    assert "dropped 1: bad rows: column 'Start': the value 'soon' is not a time (first in line 3)" in out
    assert "bad rows: column 'Start': the value '1970-01-01T00:00:00' lies before 2000" in out
    assert "bad rows: column 'ElapsedRaw': the value 'x' is not a number (first in line 5)" in out
    answer = noonward(*words, "--skip-bad", 3)
    assert (answer.code, "4 rows are bad so far; --skip-bad 3 leaves" in " ".join(answer.err.split())) == (2, True)


def test_a_header_that_stands_again_is_left_out_and_counted(noonward: CommandLine, files: list[str]) -> None:
    Path("sacct.txt").write_text(SACCT + SACCT)
    out = " ".join(noonward("import", "sacct.txt", "--timezone", "UTC").out.split())
    assert "dropped 1: the header once more (first in line 4)" in out
    assert "5 rows in, 1 rows out" in out
    Path("prices.csv").write_text(ENTSOE + ENTSOE.splitlines()[0] + "\n")
    assert "dropped 1: the header once more" in noonward("import", "prices.csv", "--fx", "EUR=1").out


def test_without_a_folder_nothing_is_written(noonward: CommandLine, files: list[str]) -> None:
    answer = noonward("import", "DE.csv")
    assert answer.code == 0
    assert "nothing was written" in answer.out
    assert {path.name for path in Path().iterdir()} == set(files)
    assert json.loads(noonward("import", "DE.csv", "--json").out)["accounts"][0]["rows_out"] == 2


def test_signal_files_of_publishers_serve_commands_as_they_are(noonward: CommandLine, files: list[str]) -> None:
    answer = noonward("data", "check", "DE.csv")
    assert answer.code == 0
    assert "50% of the hours are the publisher's estimates" in answer.out
    answer = noonward("data", "check", "prices.csv")
    assert answer.code == 2
    assert "noonward import prices.csv --fx EUR=RATE --out FOLDER" in answer.err


def test_the_formats_are_listed(noonward: CommandLine) -> None:
    listed = noonward("import", "--formats").out
    for name in ("slurm", "kubernetes", "jobs", "electricity-maps", "entsoe", "entsoe-xml", "aemo", "caiso", "ercot"):
        assert f"{name} " in listed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no file was given"),
        (["none.csv"], "there is no file none.csv"),
        (["DE.csv", "DE.csv"], "a file stands twice"),
        (["DE.csv", "--format", "electricity-map"], "did you mean 'electricity-maps'"),
        (["sacct.txt"], "line 2, column 'Submit'.*no time zone"),
        (["sacct.txt", "--timezone", "Berlin"], "time zone 'Berlin' is unknown"),
        (["sacct.txt", "--timezone", "UTC", "--origin", "bn=b"], "names 'bn', where no job of sacct.txt comes from"),
        (["prices.csv", "--fx", "1.1"], "does not say of which currency; write --fx EUR=1.1"),
        (["prices.csv", "--fx", "EUR"], "--fx 'EUR' does not say the rate; .*: --fx EUR=1.08"),
        (["prices.csv", "--fx", "EUR=108"], "one EUR has never been worth 108 US dollars"),
        (["prices.csv", "--fx", "EUR=cheap"], "'cheap' is not a number"),
        (["prices.csv", "--fx", "EUR=0"], "must be above 0"),
        (["prices.csv", "--fx", "GBP=1"], r"prices are in EUR, and no exchange rate was given for it \(given: GBP\)"),
        (["DE.csv", "--zone", "FR=DE"], "--zone names the area 'FR', which no file holds"),
        (["DE.csv", "--zone", "DE", "--zone", "FR"], "--zone names DE and FR for all files"),
        (["DE.csv", "--zone", "DE="], "not of the form KEY=VALUE"),
        (["DE.csv", "--column", "price"], "not of the form key=NAME"),
        (["DE.csv", "--column", "price=a", "--column", "price=b"], "names 'price' twice"),
        (["DE.csv", "--column", "price=Spot"], r"--column price=Spot: no file takes the key 'price': DE.csv \(Electr"),
        (["DE.csv", "--column", "pric=Spot"], "--column names the unknown key 'pric'; did you mean 'price'"),
        (["DE.csv", "--salt", "x"], "--salt was given without --anonymous"),
        (["sacct.txt", "--timezone", "UTC", "--class", "dev"], "--class 'dev' is no rule; write NAME=COLUMN==VALUE"),
        (["DE.csv", "--decimal", ";"], "--decimal ';' is unknown"),
        (["DE.csv", "--date-order", "ymd"], "--date-order 'ymd' is unknown; give dmy or mdy"),
        (["DE.csv", "--encoding", "utf-77"], "encoding 'utf-77' is unknown"),
        (["DE.csv", "--encoding", "ascii"], "is not text in ascii"),
    ],
)
def test_mistakes_are_refused_and_nothing_is_written(
    noonward: CommandLine, files: list[str], words: list[str], says: str
) -> None:
    import re

    answer = noonward("import", *words, "--out", "mine")
    assert answer.code == 2
    assert answer.out == ""
    assert re.search(says, answer.err.replace("\n", " ")), answer.err
    assert not Path("mine").exists()


def test_one_file_that_is_wrong_leaves_nothing_of_the_others(noonward: CommandLine, files: list[str]) -> None:
    assert noonward("import", "DE.csv", "prices.csv", "--out", "mine").code == 2
    assert not Path("mine").exists()


def test_rates_come_from_a_table_too(noonward: CommandLine) -> None:
    Path("rates.csv").write_text("day,currency,usd\n2023-01-02,EUR,1.2\n2023-01-01,EUR,1.1\n2023-01-01,gbp,1.3\n")
    rates = read_rates(["rates.csv"])
    assert [rate for _, rate in rates["EUR"]] == [1.1, 1.2]
    assert rates["GBP"][0][1] == 1.3
    assert read_rates(["1.5"], "eur")["EUR"][0][1] == 1.5
    Path("rates.csv").write_text("day,currency,usd\n2023,EUR,1.2\n")
    with pytest.raises(DataError, match=r"line 2, column 'day': the value '2023' is not a day"):
        read_rates(["rates.csv"])


def test_settings_reach_what_files_bring(noonward: CommandLine) -> None:
    words = ["--jobs", "jobs.csv", "--set", "jobs.columns.gpus=cards", "--policy", "local-fcfs"]
    Path("jobs.csv").write_text("arrival_s,origin,cards,duration_s,slack_s\n0,north,1,60,60\n")
    assert noonward("simulate", "tiny", *words).code == 0
    answer = noonward("simulate", "tiny", *words[2:], "--from", "2022-03-01", "--to", "2022-02-01")
    assert answer.code == 2
    assert "--to 2022-02-01 is before --from 2022-03-01" in answer.err
    answer = noonward("simulate", "tiny", "--policy", "local-fcfs", "--to", "2022-02-01")
    assert (answer.code, "without --from" in answer.err) == (2, True)
    assert noonward("simulate", "tiny", "--policy", "local-fcfs", "--from", "1 May").code == 2


JOBS = "submit_time,origin,gpus,duration_s,slack_s\n" + "".join(
    f"2022-05-{day:02d}T{hour:02d}:00:00Z,north,1,600,3600\n" for day in (1, 2, 3) for hour in (0, 5)
)


def test_one_window_is_one_environment_and_windows_that_coincide_are_said_to(noonward: CommandLine) -> None:
    Path("jobs.csv").write_text(JOBS)
    drawn = generate_signals(("CA-ON", "SG"), datetime(2022, 4, 30, tzinfo=UTC), 5 * 24, np.random.default_rng(0))
    write_generated_signals(drawn, Path("signals.csv"))
    words = [
        "compare",
        "tiny",
        "--jobs",
        "jobs.csv",
        "--signals",
        "signals.csv",
        "--policies",
        "local-fcfs",
        "--no-report",
    ]
    pinned = json.loads(noonward(*words, "--from", "2022-05-02", "--json").out)
    assert pinned["environments"] == 1
    assert "2 of the 6 jobs of jobs.csv" in str(pinned["notes"])
    several = json.loads(noonward(*words, "-n", 4, "--json").out)
    assert "the 4 environments share" in str(several["notes"])


def test_all_policies_that_do_not_fit_are_named_at_once(noonward: CommandLine) -> None:
    Path("jobs.csv").write_text(JOBS)
    words = ["compare", "tiny", "--jobs", "jobs.csv", "--from", "2022-05-01", "--no-report"]
    answer = noonward(*words, "--policies", "local-fcfs,bid-price-regression,most-free(gpus=2)")
    assert answer.code == 2
    assert "2 policies do not fit" in answer.err
    assert "'bid-price-regression' plans for jobs to come" in answer.err
    assert "'most-free(gpus=2)' answers the protocols on-arrival" in answer.err
    answer = noonward(*words, "--set", "policies=[local-fcfs, bid-price-regression]")
    assert answer.code == 0
    assert "left out: " in answer.err
