"""The chaos run for running jobs: a service that preempts jobs of a real Slurm cluster is killed again and again.

``python tests/live/chaos_running_jobs.py --kills 30`` does the full run; a test does a short one. Long jobs write a
checkpoint when they are told to stop, and are resumed from it; short ones displace them. What became of the jobs is
counted from the marks that they leave, and from what Slurm says.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from live.chaos import SERVICE, explained, state
from live.process import Process
from live.slurm_site import SlurmSite
from live.waiting import wait_for
from noonward.live.client import Client
from noonward.live.requests import JobRequest

PREEMPTING = """
from noonward import ASK_RUNNING, Needs, Scheduler
from noonward.live import setup

class Preempting(Scheduler):
    needs = Needs(protocols=("each-slot",), levers=("preempt",))

    def decide(self, view, answers):
        for site, _ in view.asked():
            if view.kind == ASK_RUNNING and view.allowed(site, site):
                answers.suspend(site)
            elif view.kind != ASK_RUNNING and view.allowed(site, site):
                answers.send(site, site)

setup.make_scheduler = lambda policy: Preempting()
"""
PREEMPTED = """
name: chaos-running-jobs
protocol: each-slot
slot_s: 60
window_h: 12
end: drained
fleet:
  gpu_types:
    T4-class:
      idle_w: 8
      classes:
        long: {power: {constant_w: 80}, time: duration}
        short: {power: {constant_w: 80}, time: duration}
  sites: [{name: north, zone: A, gpu_type: T4-class, gpus: 8, pue: 1.1}]
  freedoms:
    long: {interruptible: true, checkpoint: {stop_s: 60, dark_s: 60, load_s: 60}}
    short: {preempts: [long]}
network: {throughput_gb_per_min: 1, usd_per_gb: 0.01, kwh_per_gb: 0.005}
jobs:
  source: mixed
  classes:
    long: {rate_per_s: 1e-4, work: {law: log-normal, median_work: 3600, sigma: 0.4}}
    short: {rate_per_s: 1e-4, work: {law: log-normal, median_work: 60, sigma: 0.4}}
"""
UNITS, LAST_UNITS = 20, 100
LONG = """
trap 'stop=1; echo told >> {ran}/told-{n}' USR1
kill -0 $(cat {ran}/pid-{n} 2> /dev/null) 2> /dev/null && echo {n} >> {ran}/doubled
echo $$ > {ran}/pid-{n}
echo run >> {ran}/runs-{n}
i=$(cat {ran}/units-{n} 2> /dev/null || echo 0)
while [ $i -lt {units} ] && [ -z "$stop" ]; do sleep 0.1; i=$((i + 1)); echo $i > {ran}/units-{n}; done
rm -f {ran}/pid-{n}
[ $i -ge {units} ] || exit 85
echo done >> {ran}/done-{n}
"""


def chaos(folder, site, kills, *, seed=5, freeze=False):
    """Kills a service again and again at random moments while short jobs displace long ones.

    Args:
        folder: An empty folder.
        site: Slurm cluster of eight GPUs.
        kills: How often it is killed.
        seed: Seed of the moments.
        freeze: Let the cluster's controller stand still (SIGSTOP) for up to 15 s each time, over the kill or not.

    Returns:
        What came out.
    """
    chance, ran = random.Random(seed), folder / "ran"
    ran.mkdir()
    (folder / "chaos.yaml").write_text(PREEMPTED)
    cluster = {
        "executor": "slurm", "conf": str(site.conf), "gpus_per_node": 4, "options": ["-o", "/dev/null"],
        "checkpoint_signal": "USR1", "checkpoint_grace_s": 36000,
    }  # fmt: skip
    config = {
        "scenario": str(folder / "chaos.yaml"), "policy": "local-fcfs", "folder": str(folder / "live"), "port": 0,
        "poll_s": 60, "without_tokens": True, "sites": {"north": cluster},
    }  # fmt: skip
    script, sent = PREEMPTING + SERVICE, 0
    for turn in range(kills + 1):
        with Process("-c", script, json.dumps(config)) as service, Client(service.address, timeout_s=20.0) as client:
            if turn == kills:
                patience_s = 420.0 + 40.0 * kills  # two long jobs run at a time, and the queue grows with every kill
                sent = displaced(client, site, ran, sent, patience_s)
                found = ended(client, site, patience_s)
                break
            for _ in range(2):
                client.submit(*requests(ran, sent))
                sent += 3
                with contextlib.suppress(subprocess.TimeoutExpired):
                    service.process.wait(chance.uniform(0.3, 1.2))
            if freeze:
                site.controller(signal.SIGSTOP)
                time.sleep(chance.uniform(0.5, 15.0))
                if chance.random() < 0.5:
                    site.controller(signal.SIGCONT)
                    time.sleep(chance.uniform(0.0, 1.0))
            service.end(signal.SIGKILL)
            site.controller(signal.SIGCONT)
    return {"kills": kills, "submitted": sent} | found | counted(ran, sent)


def requests(ran, first, units=UNITS):
    """Returns two long jobs of four GPUs, and a short one of eight that displaces what runs."""
    long = [
        JobRequest(
            name="long", work=6000.0, origin="north", class_="long", gpus_min=4, max_delay_s=1e7, key=f"k{n}",
            command=LONG.format(ran=ran, n=n, units=units),
        )
        for n in (first, first + 1)
    ]  # fmt: skip
    short = JobRequest(
        name="short", work=60.0, origin="north", class_="short", gpus_min=8, max_delay_s=1e7, key=f"k{first + 2}",
        command=f"echo run >> {ran}/runs-{first + 2}; echo done >> {ran}/done-{first + 2}",
    )  # fmt: skip
    return [*long, short]


def displaced(client, site, ran, first, patience_s):
    """Lets two long jobs begin, and displaces both by a short one; returns how many jobs have been submitted."""
    *long, short = requests(ran, first, LAST_UNITS)
    client.submit(*long)
    with explained(lambda: state(client, site)):
        begun = [ran / f"units-{n}" for n in (first, first + 1)]
        wait_for(lambda: all(file.exists() for file in begun), "the last long jobs", patience_s)
    client.submit(short)
    return first + 3


def ended(client, site, patience_s):
    """Waits for the end of all jobs; returns their states, and what Slurm says of its jobs."""
    with explained(lambda: state(client, site)):
        wait_for(lambda: client.service().open_jobs == 0, "the end of all jobs", patience_s)
    states = collections.Counter(job.state for job in client.jobs(limit=1000))
    events = [event.kind for event in client.events()]
    left = site.call("squeue", "-h", "-o", "%T").split()
    return {
        "states": dict(states),
        "suspended": events.count("suspended"),
        "resumed": events.count("resume decided"),
        "left at the cluster": len(left),
    }  # fmt: skip


def counted(ran, sent):
    """Returns what became of the jobs by the marks that they left."""
    marks = {n: (ran / f"done-{n}").read_text().split() for n in range(sent) if (ran / f"done-{n}").exists()}
    doubled = (ran / "doubled").read_text().split() if (ran / "doubled").exists() else []
    units = [int((ran / f"units-{n}").read_text()) for n in range(sent) if (ran / f"units-{n}").exists()]
    wanted = UNITS * (len(units) - 2) + 2 * LAST_UNITS
    return {
        "lost": sent - len(marks),
        "done twice": sum(len(lines) > 1 for lines in marks.values()),
        "ran side by side with itself": len(doubled),
        "runs": sum(len((ran / f"runs-{n}").read_text().split()) for n in marks),
        "units of work not done": wanted - sum(units),
        "told to stop": sum(len(file.read_text().split()) for file in ran.glob("told-*")),
    }


def main():
    """Does a run and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--freeze", action="store_true", help="let Slurm's controller stand still before each kill")
    parser.add_argument("--folder", type=Path, help="a new one, which is kept: store, and marks of the jobs")
    given = parser.parse_args()
    with contextlib.ExitStack() as open_, SlurmSite("north", nodes=2, gpus=4) as site:
        folder = given.folder or Path(open_.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True, parents=True)
        os.environ["PATH"] = site.env["PATH"]
        sys.stdout.write(json.dumps(chaos(folder, site, given.kills, seed=given.seed, freeze=given.freeze)) + "\n")


if __name__ == "__main__":
    main()
