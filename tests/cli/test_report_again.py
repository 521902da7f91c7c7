"""``noonward report``: the report of a folder of records, written again without a run."""

import json
import shutil

import pytest

from noonward.evaluate.answer import headline
from noonward.evaluate.kept import kept_comparisons, read_comparison


@pytest.fixture
def compared(noonward, tmp_path):
    out = tmp_path / "runs"
    answer = noonward("compare", "tiny", "-n", 2, "--policies", "local-fcfs,cheapest-feasible", "--out", out)
    assert answer.code == 0, answer.err
    return next(out.iterdir()), answer


def test_the_report_is_written_again_from_the_records_alone(noonward, compared):
    folder, _ = compared
    (page,) = folder.glob("report-*.html")
    before, times = page.read_text(), {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}
    page.unlink()
    again = noonward("report", folder)
    assert (again.code, again.out) == (0, f"report:  {page}\n")
    assert page.read_text() == before
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")} == times


def test_a_comparison_read_back_says_the_same(compared):
    folder, answer = compared
    found, command = read_comparison(kept_comparisons(folder)[0])
    assert headline(found)[0] in answer.out
    assert found.bounded
    assert len(found.bounds) == 2
    assert command.startswith("noonward compare tiny -n 2")
    assert found.scenario.digest[:8] in folder.name


@pytest.mark.parametrize("harm", ["record", "ledger", "kept", "bound", "none"])
def test_what_cannot_be_read_is_refused_in_one_line(noonward, compared, tmp_path, harm):
    folder = shutil.copytree(compared[0], tmp_path / "copy")
    (kept,) = folder.glob("comparison-*.json")
    if harm == "record":
        shutil.rmtree(folder / "cheapest-feasible" / "001")
    elif harm == "ledger":
        ledger = folder / "cheapest-feasible" / "001" / "ledger.json"
        ledger.write_text(ledger.read_text().replace("1", "2", 1))
    elif harm == "bound":
        content = json.loads(kept.read_text())
        content["bounds"][0]["utility_usd"] = 1e6
        kept.write_text(json.dumps(content))
    elif harm == "kept":
        content = json.loads(kept.read_text())
        del content["seed"]
        kept.write_text(json.dumps(content))
    else:
        kept.unlink()
    answer = noonward("report", folder)
    assert answer.code == 2
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert "run the" in answer.err
