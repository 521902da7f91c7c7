"""Bad input of the commands that answer: each refused once and clearly, with exit code 2, and nothing half-written."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from command_line import CommandLine
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals

WHEN = "when --gpus 8 --gpu L4 --hours 6 --now 2022-05-03T09:00 --by 2022-05-04T09:00 --zones SG --signals hours.csv"
FLEET = "when --gpus 2 --hours 6 --now 2022-05-03T09:00 --by 2022-05-04T09:00 --fleet tiny --signals hours.csv"


def instead(command: str, old: str, new: str = "") -> str:
    """Returns a command with a part replaced, which must be there."""
    assert old in command
    return command.replace(old, new)


BAD = {
    "no place": (instead(WHEN, "--zones SG"), "either --zones DE,FR,SE-SE3 or --fleet"),
    "two kinds of places": (f"{WHEN} --fleet tiny", "either --zones DE,FR,SE-SE3 or --fleet"),
    "unknown zone": (instead(WHEN, "SG", "SGP"), "zone 'SGP' has no row in hours.csv; did you mean 'SG'"),
    "zone twice": (instead(WHEN, "SG", "SG,SG"), "names no zone, or one twice"),
    "no GPU": (instead(WHEN, "--gpu L4"), "name its GPU"),
    "unknown GPU": (instead(WHEN, "--gpu L4", "--gpu H900"), "GPU 'H900' is not in the library"),
    "no hours": (instead(WHEN, "--hours 6", "--hours 0"), "--hours 0 is not allowed; give a finite number above 0"),
    "hours that are no number": (instead(WHEN, "--hours 6", "--hours nan"), "'--hours': 'nan' is not a duration"),
    "no GPUs": (instead(WHEN, "--gpus 8", "--gpus 0"), "greater than or equal to 1"),
    "PUE below one": (f"{WHEN} --pue 0.5", "--pue 0.5 is not allowed"),
    "negative carbon price": (f"{WHEN} --carbon-price -1", "--carbon-price -1 is not allowed"),
    "a deadline in words": (instead(WHEN, "2022-05-04T09:00", "tomorrow"), "--by: 'tomorrow' is not a time; write it"),
    "now in words": (instead(WHEN, "2022-05-03T09:00", "soon"), "--now: 'soon' is not a time"),
    "too little time": (instead(WHEN, "05-04T09:00", "05-03T12:00"), "the job takes 6 h, but"),
    "a deadline long gone": (instead(WHEN, "--now 2022-05-03T09:00"), "there are 0 h; give a later --by"),
    "before the file": (instead(WHEN, "2022-05-03T09:00", "2022-04-03T09:00"), "the signals begin after 2022-04-03"),
    "far after the file": (instead(WHEN, "05-04T09:00", "07-04T09:00"), "forecasts reach 168 h"),
    "unknown clock": (f"{WHEN} --timezone Europe/Berlinn", "time zone 'Europe/Berlinn' is unknown"),
    "no such file": (instead(WHEN, "hours.csv", "none.csv"), "there is no file none.csv"),
    "no file": (instead(WHEN, "--signals hours.csv"), "no prices were given"),
    "a class without a fleet": (f"{WHEN} --class x", "--class belongs to a fleet's scenario"),
    "unknown site": (f"{WHEN} --at DE", "--at DE: the job cannot run there"),
    "fleet without files": (instead(FLEET, "--signals hours.csv"), "has no hours from files"),
    "a PUE of a fleet": (f"{FLEET} --pue 1.2", "--pue belongs to --zones"),
    "more GPUs than any site": (instead(FLEET, "--gpus 2", "--gpus 64"), "no site has 64 GPUs"),
    "GPU that the fleet lacks": (f"{FLEET} --gpu H100", "the fleet has no GPU of type 'H100'"),
    "class that the fleet lacks": (f"{FLEET} --class big", "no class of jobs 'big'"),
    "fleet of edge servers": (instead(FLEET, "tiny", "edge-inference"), "kind"),
    "unknown fleet": (instead(FLEET, "tiny", "tyni"), "tyni"),
    "picture of an unknown kind": ("data show hours.csv --out p.png", "is written as .html or .svg"),
    "picture of an unknown zone": ("data show hours.csv --zones XX --out p.svg", "zone 'XX' has no row"),
    "days outside the file": ("data show hours.csv --from 2023-01-01 --out p.svg", "2023"),
    "days in the wrong order": ("data show hours.csv --from 2022-05-03 --to 2022-05-01 --out p.svg", "before"),
    "no file to show": ("data show nothing.csv --out p.svg", "there is no file nothing.csv"),
    "unknown format to show": ("data show hours.csv --format aemoo --out p.svg", "format 'aemoo' is unknown"),
    "a curve of a scenario without prices": ("trade-off dvfs-training", "no prices with a carbon price"),
    "carbon prices in words": ("trade-off tiny --carbon-prices low,high", "'low,high' is no list of numbers"),
    "a curve of one point": ("trade-off tiny --carbon-prices 100", "give at least two, each once"),
    "a point twice": ("trade-off tiny --slack-h 1,1", "give at least two, each once"),
    "negative slack": ("trade-off tiny --slack-h -1,2", "'-1' is not a duration"),
    "slack beyond the signals": ("trade-off tiny --slack-h 0,5000", "choose a window inside or give longer signals"),
    "an unknown policy to study": ("sensitivity tiny --policy bid", "bid"),
    "a policy against itself": ("sensitivity tiny --policy local-fcfs", "would be compared with itself"),
    "an unknown policy of today": ("sensitivity tiny --today fcfs", "fcfs"),
    "a table of another kind": ("sensitivity tiny --csv t.xlsx", "a file whose name ends in .csv"),
    "a table in a file": ("compare tiny --csv hours.csv/t.csv", "hours.csv"),
    "a workbook of another kind": ("compare tiny --xlsx t.csv", "a file whose name ends in .xlsx"),
    "jobs of another kind": ("compare tiny --jobs-parquet jobs.csv", "a file whose name ends in .parquet"),
    "a table that is a folder": ("compare tiny --csv .", "a file whose name ends in .csv"),
    "a table in a missing folder": ("compare tiny --csv reprots/t.csv", "--csv reprots/t.csv: there is no folder"),
    "a workbook in a missing folder": ("compare tiny --xlsx reprots/t.xlsx", "--xlsx reprots/t.xlsx: there is no"),
    "jobs in a missing folder": (
        "compare tiny --jobs-parquet no/j.parquet",
        "--jobs-parquet no/j.parquet: there is no",
    ),
    "cases in a missing folder": ("sensitivity tiny --csv reprots/t.csv", "make it first, or correct the path"),
    "a picture in a missing folder": ("data show hours.csv --out no/p.svg", "--out no/p.svg: there is no folder"),
    "a fleet in a missing folder": ("init no/x.yaml --site a=DE:8xL4", "FILE no/x.yaml: there is no folder"),
    "events in a missing folder": ("data events https://vtn.example no/e.json", "FILE no/e.json: there is no folder"),
    "records in a file": ("trade-off tiny --out hours.csv", "hours.csv"),
    "bound of no time": ("compare tiny --bound-seconds 0", "give a finite number above 0"),
    "today's policy unknown": ("compare tiny --today fifo-local", "fifo-local"),
    "a folder that is a file": ("data show hours.csv --out hours.csv/p.svg", "hours.csv"),
}
"""Commands and what their message says."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with four days of hours."""
    made = generate_signals(("CA-ON", "SG"), datetime(2022, 5, 1, tzinfo=UTC), 4 * 24, np.random.default_rng(0))
    write_generated_signals(made, tmp_path / "hours.csv")
    return tmp_path


@pytest.mark.parametrize("name", BAD)
def test_each_is_refused_once_and_nothing_is_written(noonward: CommandLine, folder: Path, name: str) -> None:
    command, says = BAD[name]
    before = sorted(folder.iterdir())
    answer = noonward(*command.split())
    assert answer.code == 2, answer.out + answer.err
    assert says.lower() in answer.err.lower()
    assert "Traceback" not in answer.err
    assert answer.err.count("error:") + answer.err.count("Error:") + answer.err.count("Error ─") <= 1
    assert answer.out == ""
    assert sorted(folder.iterdir()) == before


def test_an_unknown_zone_names_the_nearest_and_what_lists_all(noonward: CommandLine, folder: Path) -> None:
    answer = noonward("init", str(folder / "x.yaml"), "--site", "a=Norway:8xL4")
    assert "zone 'Norway' is unknown; the nearest of 153 known: NO, " in answer.err
    assert "'noonward init --zones' lists them" in answer.err
    assert len(answer.err) < 250
    assert "did you mean 'DE'?" in noonward("init", str(folder / "x.yaml"), "--site", "a=de:8xL4").err


def test_they_are_fifty_at_least() -> None:
    assert len(BAD) >= 50
