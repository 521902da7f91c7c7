"""What ``compare`` may be given from Python, and what it gives back as DataFrames."""

from datetime import datetime, timedelta

import polars as pl
import pytest

from noonward import Needs, Scheduler, load_scenario
from noonward.errors import ScenarioError, SchedulerError
from noonward.evaluate.compare import compare
from noonward.schedule.policies import default_registry


class StaysHome(Scheduler):
    """Runs jobs where they are, at most so many a run."""

    needs = Needs(protocols=("each-slot",))

    def __init__(self, most=10**9):
        self.most = most

    def decide(self, view, answers):
        for here, job in view.asked():
            if self.most > 0 and view.allowed(here, here) and view.free_S[here] >= view.job_J["gpus_min"][job]:
                answers.send(here, here)
                self.most -= 1


class Mistaken(StaysHome):
    def decide(self, view, answers):
        raise KeyError("no such thing")


@pytest.fixture(scope="module")
def found():
    return compare("tiny", ["local-fcfs", StaysHome], environments=2, seed=3, bound=False)


def test_names_scenarios_mappings_and_files_are_alike(found, tmp_path):
    tiny = load_scenario("tiny")
    path = tmp_path / "mine.yaml"
    path.write_text("extends: tiny\nname: tiny\n", encoding="utf-8")
    for given in (tiny, tiny.model_dump(mode="json"), path, str(path)):
        other = compare(given, ["local-fcfs"], environments=1, seed=3, bound=False)
        assert other.records["local-fcfs"][0].ledger == found.records["local-fcfs"][0].ledger


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = compare("tiny", ["random"], environments=1, bound=False)
    assert list(tmp_path.iterdir()) == []
    folder = found.folder
    assert folder.is_dir()
    found.held.remove()
    assert not folder.is_dir()
    compare("tiny", ["random"], environments=1, bound=False, out="asked")
    assert [path.name for path in tmp_path.iterdir()] == ["asked"]


def test_classes_and_objects_are_named_for_their_class_and_registered_nowhere(found):
    assert list(found.records) == ["local-fcfs", "StaysHome"]
    assert not default_registry().knows("StaysHome")


def test_every_run_takes_a_copy_of_an_object():
    found = compare("tiny", [StaysHome(most=3)], environments=2, bound=False)
    assert found.values("StaysHome", "done").tolist() == [3, 3]


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ([3], "3 is no policy"),
        ([StaysHome, StaysHome()], "a policy named 'StaysHome' is there already"),
    ],
)
def test_what_is_no_policy_is_refused(policies, message):
    with pytest.raises(ScenarioError, match=message):
        compare("tiny", policies, environments=1)


def test_an_error_in_a_class_names_its_line():
    with pytest.raises(SchedulerError, match=r"test_given.py, line \d+, in decide: raise KeyError"):
        compare("tiny", [Mistaken], environments=1)


def test_frames_hold_the_ledgers_jobs_and_hours(found):
    runs = found.to_frame()
    assert runs["policy"].unique(maintain_order=True).to_list() == found.ranked()
    assert runs.height == 4
    row = runs.filter((pl.col("policy") == "local-fcfs") & (pl.col("environment") == 1)).row(0, named=True)
    record = found.records["local-fcfs"][1]
    assert row["utility_usd"] == record.ledger.utility_usd
    start = datetime.fromisoformat(record.manifest["start"])
    assert row["start"] == start
    jobs = found.jobs().filter((pl.col("policy") == "local-fcfs") & (pl.col("environment") == 1))
    assert jobs.height == record.ledger.jobs
    for job in jobs.iter_rows(named=True):
        assert abs(job["arrival"] - start - timedelta(seconds=job["arrival_s"])) < timedelta(milliseconds=1)
        assert (job["start"] is None) == (job["status"] == "overdue")
    hours = found.hours()
    assert hours["time"].min() == runs["start"].min()
    assert set(hours["policy"]) == set(found.records)


def test_a_notebook_shows_headline_and_table(found):
    html = found._repr_html_()
    assert "<table>" in html
    assert "StaysHome" in html


def test_a_report_is_written_where_asked(found, tmp_path):
    path = tmp_path / "new" / "r.html"
    assert found.report(path) == path
    assert "class='answer'" in path.read_text(encoding="utf-8")
