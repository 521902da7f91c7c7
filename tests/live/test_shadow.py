"""Shadow over a real Slurm cluster: jobs are read, decided about, left alone, and compared with what happened."""

import pytest

from live.slurm_site import MISSING, SlurmSite
from live.waiting import wait_for
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError
from noonward.live.accounts import WHAT_HAPPENED, savings
from noonward.live.clock import SystemClock
from noonward.live.config import LiveConfig, ShadowConfig
from noonward.live.controller import Controller
from noonward.live.executors.protocol import ClusterError
from noonward.live.setup import Setup
from noonward.live.shadow.queue import seen_jobs
from noonward.live.shadow.watcher import Watcher
from noonward.live.store.store import Store
from noonward.live.web.words import headline

LISTING = """\
JOBID|STATE|SUBMIT_TIME|START_TIME|END_TIME|TIME_LIMIT|NODES|TASKS|TRES_PER_JOB|TRES_PER_NODE|TRES_PER_TASK|REASON|NAME|
1|RUNNING|100|110|3710|1:00:00|2|1|N/A|gres:gpu:4|N/A|None|a|b|
2_1|PENDING|101|N/A|N/A|10:00|1|1|gres:gpu:3|N/A|N/A|Resources|c|
3|PENDING|102|N/A|N/A|10:00|1|1|gres:gpu:3|N/A|N/A|JobHeldUser|d|
4|COMPLETED|103|120|180|UNLIMITED|1|1|N/A|gres:gpu:1|N/A|None|e|
5|CANCELLED|104|130|130|10:00|1|1|N/A|gres:gpu:1|N/A|None|f|
6|RUNNING|105|130|730|10:00|1|1|N/A|N/A|N/A|None|no GPUs|
7+0|RUNNING|105|130|730|10:00|1|1|N/A|gres:gpu:1|N/A|None|a part|
8|PENDING|106|900|1500|10:00|1|1|gres:gpu:3|N/A|N/A|Dependency|g|
"""


def test_a_listing_is_read():
    found = seen_jobs(LISTING, "squeue")
    told = [(one.number, one.gpus, one.phase, one.submit, one.start, one.end, one.limit_s, one.name) for one in found]
    assert told == [
        ("1", 8, "running", 100.0, 110.0, None, 3600.0, "a|b"),
        ("2_1", 3, "queued", 101.0, None, None, 600.0, "c"),
        ("3", 3, "held", 102.0, None, None, 600.0, "d"),
        ("4", 1, "done", 103.0, 120.0, 180.0, None, "e"),
        ("5", 1, "cancelled", 104.0, None, 130.0, 600.0, "f"),
        ("8", 3, "queued", 106.0, None, None, 600.0, "g"),
    ]  # fmt: skip
    assert [bool(job.waits) for job in found] == [False, False, True, False, False, True]
    with pytest.raises(DataError, match="no output of squeue"):
        seen_jobs("", "squeue")


class Cluster:
    """A Slurm cluster that lists some finished jobs, and keeps no accounts that answer."""

    def __init__(self, *numbers):
        self.numbers = numbers

    def listing(self, fields):
        rows = [f"{n}|COMPLETED|{n}|{n}|{n + 60}|10:00|1|1|N/A|gres:gpu:1|N/A|None|job|" for n in self.numbers]
        return "\n".join([LISTING.splitlines()[0], *rows, ""])

    def accounted(self, handles):
        raise ClusterError("sacct did not answer")


def watcher(live, cluster):
    return Watcher(
        live.store, cluster, 0, live.scenario.fleet, ShadowConfig(), 64, lambda: live.controller.world,
        live.controller.touch,
    )  # fmt: skip


def test_a_look_reads_what_is_open_and_what_is_listed_not_the_whole_history(service):
    live = service("local-fcfs")
    row = "INSERT INTO watched (site, number, submit_s, job, gpus, state, end_s) VALUES (?, ?, 0, -1, 1, 'done', 1)"
    live.store.do(
        lambda connection, now_s: connection.executemany(row, [("north", f"h{n}") for n in range(2000)]) and None
    )
    watched = watcher(live, Cluster(*range(600)))
    watched.step()
    read, reading = [], live.store.read

    def spy(query, *values):
        rows = reading(query, *values)
        read.extend(rows if "FROM watched" in query else [])
        return rows

    live.store.read = spy
    watched.step()
    assert len(read) == 600
    assert len(reading("SELECT number FROM watched")) == 2600


def test_a_job_stays_open_while_the_accounting_does_not_answer(service):
    live = service("local-fcfs")
    row = "INSERT INTO watched (site, number, submit_s, job, gpus, state) VALUES ('north', '7', 0, -1, 1, 'running')"
    live.store.do(lambda connection, now_s: connection.execute(row) and None)
    cluster = Cluster()
    watched = watcher(live, cluster)
    watched.step()
    open_ = "SELECT state FROM watched WHERE end_s IS NULL"
    assert [one["state"] for one in live.store.read(open_)] == ["running"]
    cluster.accounted = lambda handles: []
    watched.step()
    assert live.store.read(open_) == []


@pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: {', '.join(MISSING)} missing")
def test_jobs_of_a_cluster_are_decided_about_left_alone_and_compared_with_what_happened(tmp_path, monkeypatch):
    scenario = load_scenario("tiny", ["slot_s=1"])
    with SlurmSite("north", nodes=2, gpus=4) as site:
        monkeypatch.setenv("PATH", site.env["PATH"])

        def sbatch(*options, hours=1):
            made = site.call("sbatch", "--parsable", "-o", "/dev/null", f"--time={hours}:00:00", *options)
            return made.strip()

        before = sbatch("--gres=gpu:2", "--wrap", "sleep 600")
        wait_for(lambda: "RUNNING" in site.call("squeue", "-h", "-j", before, "-o", "%T"), "the first job's start")
        store = Store(tmp_path, SystemClock())
        config = LiveConfig(
            scenario="tiny", policy="local-fcfs",
            sites={"north": {"executor": "slurm", "conf": site.conf}, "south": {"executor": "model"}},
        )  # fmt: skip
        try:
            controller = Controller(Setup.of(config, scenario, store, shadow=True), store)
            assert controller.setup.runs_nothing

            def steps():
                controller.watch(0)
                for s in range(2):
                    controller.track(s)
                controller.decide()
                for s in range(2):
                    controller.deliver(s)

            steps()
            steps()
            assert store.read("SELECT id FROM jobs") == []
            assert store.read("SELECT withheld FROM sites WHERE name = 'north'")[0]["withheld"] == 2
            short = sbatch("--gres=gpu:1", "-J", "short", "--wrap", "sleep 1", hours=2)
            held = sbatch("--hold", "--gres=gpu:1", "--wrap", "true")
            gone = sbatch("--gres=gpu:4", "--nodes=2", "-J", "gone", "--wrap", "true")

            def state(name):
                steps()
                rows = store.read("SELECT state FROM jobs WHERE name = ?", name)
                return rows[0]["state"] if rows else None

            wait_for(lambda: state("gone") is not None, "the job that waits")
            site.call("scancel", gone)
            wait_for(lambda: state("short") == "done", "the short job's end")
            wait_for(lambda: state("gone") == "cancelled", "the cancelled job's end")
            row = store.read("SELECT * FROM jobs WHERE name = 'short'")[0]
            fact = store.read("SELECT * FROM watched WHERE number = ?", short)[0]
            assert (row["work"], row["gpus_min"], fact["job"], fact["expected_s"]) == (7200.0, 1, row["id"], 7200.0)
            assert row["ended_s"] - row["start_s"] == pytest.approx(fact["end_s"] - fact["start_s"], abs=1e-6)
            found = savings(controller)
            assert (found.reference, [day.jobs for day in found.days], found.run_times.jobs) == (WHAT_HAPPENED, [1], 1)
            assert found.run_times.expected_h == pytest.approx(2.0)
            assert found.run_times.took_h < 0.05
            # Both ran in the same hours at the same power: which sign a difference of rounding has is the hour's.
            assert headline(found).endswith(" against what happened: 1 job, 1 day.")
            assert found.days[0].energy_kwh == pytest.approx(found.days[0].reference_kwh, rel=1e-6)
            names = [row["name"] for row in store.read("SELECT name FROM jobs ORDER BY id")]
            assert names == ["short", "gone"]
            queue = site.call("squeue", "-h", "--states=all", "-o", "%i %T")
            states = dict(line.split() for line in queue.splitlines())
            assert (states[before], states[short], states[held]) == ("RUNNING", "COMPLETED", "PENDING")
            assert "nw-" not in site.call("squeue", "-h", "--states=all", "-o", "%j")
        finally:
            site.call("scancel", before)
            store.close()
