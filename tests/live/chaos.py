"""The chaos run: a service that is killed again and again under load, over a Slurm site with a slow sbatch.

``python tests/live/chaos.py --kills 50`` does the full run, ``--fault NAME`` one in which what the service rests on
fails instead; tests do short ones.
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from live.grid_server import GridServer
from live.postgres_server import PostgresServer
from live.process import Process
from live.slurm_site import SlurmSite
from live.waiting import wait_for
from noonward.live.client import Client, ServiceError
from noonward.live.requests import JobRequest
from noonward.live.store.schema import ENDED, OPEN

SERVICE = """
import json, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from noonward.live import decided
from noonward.live.clock import SystemClock
from noonward.live.config import checked_config
from noonward.live.server import serve
from noonward.live.store.sqlite import NAME, last_time
said = json.loads(sys.argv[1])
decided.PART = said.pop("part", decided.PART)
config, scenario = checked_config(said, "chaos", Path())
last = last_time(config.folder) if (config.folder / NAME).is_file() else None
start = None if last is None else last + timedelta(seconds=1)
if config.database is not None:  # the clocks of all instances show the same time
    start = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=600.0 * (time.time() - float(sys.argv[2])))
clock = SystemClock(600.0, start)
serve(config, scenario, clock=clock, started=lambda address, controller: print(address, flush=True))
"""
SCENARIO = """
name: chaos
protocol: each-slot
slot_s: 60
window_h: 12
end: drained
fleet:
  gpu_types:
    T4-class: {idle_w: 8, classes: {fine-tuning: {power: {constant_w: 80}, time: duration}}}
  sites:
    - {name: north, zone: A, gpu_type: T4-class, gpus: 8, pue: 1.1}
    - {name: south, zone: B, gpu_type: T4-class, gpus: 8, pue: 1.2}
network: {throughput_gb_per_min: 1, usd_per_gb: 0.01, kwh_per_gb: 0.005}
jobs:
  source: fine-tuning
  count: 30
  origin_shares: {north: 1, south: 1}
  gpus_cap: 1
  kinds: {one: {share: 1, data: {low_gb: 0, high_gb: 0}, model: {low_gb: 0, high_gb: 0}}}
"""
SLOW = """#!/bin/sh
if [ -e {hangs} ]; then  # it hangs beyond its caller's patience, and the job lands afterwards all the same
    script=$(mktemp {hangs}.XXXXXX)
    cat > $script
    setsid sh -c 'sleep {hang}; exec {real}/sbatch "$@" < "$0"' $script "$@" > /dev/null 2>&1 < /dev/null &
    exec sleep 300
fi
sleep {pause}
{real}/sbatch "$@"
code=$?
sleep {pause}
exit $code
"""

SITES = ("north", "south")
"""Sites of the jobs, in turn."""
PART = 250
"""Jobs that one change of the store writes, at most."""
HANG_S = 40
"""After how long a job lands whose sbatch hangs, s: the executor gives up after 30."""
DISK = "size=6m"
"""Size of the disk that is filled."""
FAULTS = ("database", "hang", "disk", "feed")
"""What fails: PostgreSQL is killed; sbatch hangs and its job lands later; the store's disk is full; publishers of
prices and intensities hang."""


@contextlib.contextmanager
def slow_site(folder, pause_s):
    """A Slurm cluster of two nodes whose sbatch takes longer: before and after it has passed the job on."""
    slow = folder / "slow"
    slow.mkdir()
    (slow / "sbatch").write_text(
        SLOW.format(pause=pause_s, real="/usr/bin", hangs=folder / "sbatch-hangs", hang=HANG_S)
    )
    (slow / "sbatch").chmod(0o755)
    before = os.environ["PATH"]
    with SlurmSite("north", nodes=2, gpus=4) as site:
        os.environ["PATH"] = f"{slow}:{site.env['PATH']}"
        try:
            yield site
        finally:
            os.environ["PATH"] = before


class Load:
    """Submits small batches, repeats those that were not answered, and notes what was acknowledged."""

    def __init__(self, ran, size):
        self.ran, self.size = ran, size
        self.acknowledged, self.sent = {}, 0
        self._pending = None

    def batch(self, client):
        """Submits a batch; after a failure the same batch comes again, with the same keys."""
        if self._pending is None:
            self._pending = range(self.sent, self.sent + self.size)
            self.sent += self.size
        jobs = [
            JobRequest(
                name="a", work=1.0, origin=SITES[n % 2], site=SITES[n % 2], key=f"k{n}",
                command=f"echo x >> {self.ran}/{n}",
            )
            for n in self._pending
        ]  # fmt: skip
        self.acknowledged.update(zip(self._pending, client.submit(*jobs).ids, strict=True))
        self._pending = None


@contextlib.contextmanager
def explained(words):
    """Adds what a function says to an assertion that fails here."""
    try:
        yield
    except AssertionError as error:
        error.add_note(words())
        raise


def state(client, site):
    """Returns the open jobs of a service, its last events, and what Slurm says of jobs and nodes."""
    jobs = [job for name in OPEN for job in client.jobs(state=name, limit=20)]
    return "\n".join(
        [
            *map(str, [client.service(), *client.sites(), *jobs, *list(client.events())[-30:]]),
            site.call("squeue", "--states=all", "-o", "%i %j %T %r"),
            site.call("sinfo", "-N", "-o", "%N %T %E"),
        ]
    )


def chaos(folder, site, kills, *, seed=3, size=4, part=PART, said=None):
    """Kills a service again and again at random moments while batches come in.

    Args:
        folder: An empty folder.
        site: Slurm cluster of the site north.
        kills: How often it is killed.
        seed: Seed of the moments.
        size: Jobs of a batch.
        part: Jobs that one change of the store writes, at most.
        said: Further keys of the configuration.

    Returns:
        What came out: kills, acknowledged, lost, doubled, strays cancelled, states.
    """
    chance, ran = random.Random(seed), folder / "ran"
    ran.mkdir()
    (folder / "chaos.yaml").write_text(SCENARIO)
    config = {
        "scenario": str(folder / "chaos.yaml"), "policy": "local-fcfs", "folder": str(folder / "live"), "port": 0,
        "poll_s": 60,
        "without_tokens": True, "part": part,
        "sites": {
            "north": {"executor": "slurm", "conf": str(site.conf), "gpus_per_node": 4, "options": ["-o", "/dev/null"]},
            "south": {"executor": "local"},
        },
    } | (said or {})  # fmt: skip
    load = Load(ran, size)
    killed_again(config, load, kills, chance)
    with Process("-c", SERVICE, json.dumps(config)) as service, Client(service.address) as client:
        while load._pending is not None:
            load.batch(client)
        found = ended(client, site, load)
    return found | counted(ran, load) | at_cluster(site, load, ["north"]) | {"kills": kills}


def killed_again(config, load, kills, chance, longest_s=0.4):
    """Kills a service again and again while batches come in, half of the times in the middle of one.

    Args:
        config: Its configuration.
        load: The batches.
        kills: How often it is killed.
        chance: Source of the moments.
        longest_s: For how long it lives on after a batch, at most, s.
    """
    for _ in range(kills):
        with Process("-c", SERVICE, json.dumps(config)) as service, Client(service.address, timeout_s=5.0) as client:
            for _ in range(chance.randrange(1, 5)):
                load.batch(client)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    service.process.wait(chance.uniform(0.02, longest_s))
            if chance.random() < 0.5:
                kill = f"sleep {chance.uniform(0, 0.01):.4f}; kill -9 {service.process.pid}"
                with subprocess.Popen(["sh", "-c", kill]), contextlib.suppress(ServiceError):
                    load.batch(client)
            service.end(signal.SIGKILL)


def ended(client, site, load):
    """Waits for the end of all jobs and strays; returns their states."""
    with explained(lambda: state(client, site)):
        wait_for(lambda: client.service().open_jobs == 0, "the end of all jobs", 300.0)
        wait_for(lambda: "JobHeld" not in site.call("squeue", "-h", "-o", "%r"), "the end of strays", 90.0)
    strays = sum(event.kind == "stray cancelled" for event in client.events())
    states = {name: len(client.jobs(state=name, limit=1000)) for name in ENDED}
    return {"strays cancelled": strays, "states": {name: count for name, count in states.items() if count}}


def counted(ran, load):
    """Returns what became of the jobs by the marks that they left."""
    counts = {int(file.name): len(file.read_text().split()) for file in ran.iterdir()}
    return {
        "acknowledged": len(load.acknowledged),
        "lost": len(load.acknowledged.keys() - counts.keys()),
        "doubled": sum(count > 1 for count in counts.values()),
        "not asked for": len(set(counts) - set(range(load.sent))),
    }


def at_cluster(site, load, of_slurm):
    """Returns what Slurm says of the acknowledged jobs, whose numbers are in the names of its own.

    Args:
        site: Slurm cluster.
        load: What was submitted.
        of_slurm: Sites whose jobs it runs.
    """
    rows = [line.split() for line in site.call("squeue", "-h", "--states=all", "-o", "%j %T").splitlines()]
    done = collections.Counter(int(name.split("-")[2]) for name, said in rows if said == "COMPLETED")
    wanted = {job for n, job in load.acknowledged.items() if SITES[n % 2] in of_slurm}
    return {
        "done at the cluster": done.total(),
        "lost at the cluster": len(wanted - done.keys()),
        "doubled at the cluster": sum(count > 1 for count in done.values()),
        "not ended at the cluster": sum(said in ("PENDING", "RUNNING", "SUSPENDED") for _, said in rows),
    }


def standby_chaos(folder, site, database, kills, *, seed=3, size=4, part=PART, freeze=False):
    """Kills the leader of two instances over a PostgreSQL again and again at random moments while batches come in.

    Args:
        folder: An empty folder.
        site: Slurm cluster of both sites.
        database: Address of an empty database.
        kills: How often the leader is killed.
        seed: Seed of the moments.
        size: Jobs of a batch.
        part: Jobs that one change of the store writes, at most.
        freeze: Stop the leader (SIGSTOP) instead, and continue it once the other one leads: it must end by itself.

    Returns:
        What came out, as of ``chaos``, with the median and the longest time from a kill to the next leader's answer, s.
        The one that takes over may still be starting.
    """
    chance, ran, took_s = random.Random(seed), folder / "ran", []
    ran.mkdir()
    (folder / "chaos.yaml").write_text(SCENARIO)
    cluster = {"executor": "slurm", "conf": str(site.conf), "gpus_per_node": 4, "options": ["-o", "/dev/null"]}
    config = {
        "scenario": str(folder / "chaos.yaml"), "policy": "local-fcfs", "port": 0, "poll_s": 60, "database": database,
        "without_tokens": True, "part": part,
        "sites": {"north": cluster, "south": cluster},
    }  # fmt: skip
    load, began, number = Load(ran, size), str(time.time()), itertools.count()

    def instance(stack):
        said = json.dumps(config | {"folder": str(folder / f"instance{next(number)}")})
        return stack.enter_context(Process("-c", SERVICE, said, began, wait=False))

    with contextlib.ExitStack() as stack:
        leader, standby = instance(stack), instance(stack)
        for _ in range(kills):
            if leader.address is None:
                leader, standby = first_of(leader, standby)
            with Client(leader.address, timeout_s=20.0) as client:
                for _ in range(chance.randrange(1, 5)):
                    load.batch(client)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        leader.process.wait(chance.uniform(0.02, 0.4))
                how = "STOP" if freeze else "KILL"
                kill = f"sleep {chance.uniform(0, 0.02):.4f}; kill -{how} {leader.process.pid}"
                killed = time.monotonic()
                with subprocess.Popen(["sh", "-c", kill]), contextlib.suppress(ServiceError):
                    load.batch(client)
            if not freeze:
                leader.process.wait(60)
            standby.ready()
            with Client(standby.address) as client:
                client.service()
            took_s.append(time.monotonic() - killed)
            if freeze:
                leader.process.send_signal(signal.SIGCONT)
                leader.process.wait(120)
            leader.close()
            leader, standby = standby, instance(stack)
        with Client(leader.address, timeout_s=20.0) as client:
            while load._pending is not None:
                load.batch(client)
            found = ended(client, site, load)
        leader.end()
    middle_s, longest_s = round(statistics.median(took_s), 2), round(max(took_s), 2)
    takeovers = {"median takeover, s": middle_s, "longest takeover, s": longest_s}
    return found | counted(ran, load) | at_cluster(site, load, SITES) | {"kills": kills} | takeovers


class Faults:
    """What a service rests on, and how it fails and is mended.

    Args:
        folder: Folder of the run.
        stack: Closes what is opened.
    """

    def __init__(self, folder, stack):
        self.folder, self.stack, self.config = folder, stack, {"folder": str(folder / "live")}

    def database(self):
        server = self.stack.enter_context(PostgresServer())
        self.config["database"] = server.database()

        def begin():
            server.process.kill()
            server.process.wait()

        return begin, server.start

    def hang(self):
        flag = self.folder / "sbatch-hangs"
        return flag.touch, flag.unlink

    def disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", disk], check=True)
        self.stack.callback(subprocess.run, ["umount", "-l", disk], check=True)
        self.config["folder"] = str(disk)

        def begin():
            with contextlib.suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass

        return begin, (disk / "fill").unlink

    def feed(self):
        server = GridServer(datetime.now(UTC) + timedelta(days=60))
        self.stack.callback(server.close)
        right, mended = server.answer, threading.Event()
        self.stack.callback(mended.set)
        key = self.folder / "key"
        key.write_text("key\n")
        zones = ("A", "B")
        prices = {
            "source": "entsoe", "key_file": str(key), "zones": dict.fromkeys(zones, "10YFR-RTE------C"),
            "usd_per": {"EUR": 1.0},
        }  # fmt: skip
        intensities = {"source": "gb-carbon-intensity", "zones": dict.fromkeys(zones, "GB")}
        self.config |= {
            "signals": [feed | {"url": server.url, "quota_per_hour": 100_000} for feed in (prices, intensities)],
            "policy": "cheapest-feasible",
        }
        scenario = self.folder / "chaos.yaml"
        economics = "economics: {revenue_usd_per_gpu_hour: 2, carbon_usd_per_t: 50}"
        scenario.write_text(f"{SCENARIO}{economics}\nsignals: {{source: generated}}\n")

        def hangs(*asked):
            mended.wait(60.0)
            return right(*asked)

        def begin():
            mended.clear()
            server.answer = hangs

        def end():
            server.answer = right
            mended.set()

        return begin, end


def fault_chaos(folder, site, fault, rounds, *, seed=3, size=4, part=PART):
    """Lets what a service rests on fail again and again while batches come in; the service is started when it ends.

    Args:
        folder: An empty folder.
        site: Slurm cluster of both sites.
        fault: One of FAULTS.
        rounds: How often it fails.
        seed: Seed of the moments.
        size: Jobs of a batch.
        part: Jobs that one change of the store writes, at most.

    Returns:
        What came out, as of ``chaos``, with the submissions that were not answered, and how often the service ended.
    """
    chance, ran, refused, ends = random.Random(seed), folder / "ran", 0, 0
    ran.mkdir()
    (folder / "chaos.yaml").write_text(SCENARIO)
    cluster = {"executor": "slurm", "conf": str(site.conf), "gpus_per_node": 4, "options": ["-o", "/dev/null"]}
    config = {
        "scenario": str(folder / "chaos.yaml"), "policy": "local-fcfs", "port": 0, "poll_s": 60,
        "without_tokens": True, "part": part, "sites": {"north": cluster, "south": cluster},
    }  # fmt: skip
    load, began = Load(ran, size), str(time.time())
    with contextlib.ExitStack() as stack:
        faults = Faults(folder, stack)
        begin, end = getattr(faults, fault)()
        said = json.dumps(config | faults.config)
        service = None

        def up():
            """Starts the service if it does not run, as its unit does."""
            nonlocal service, ends
            if service is None or service.process.poll() is not None:
                ends += service is not None
                service = stack.enter_context(Process("-c", SERVICE, said, began))

        def some(count):
            """Sends some batches; one that is not acknowledged comes again."""
            nonlocal refused
            for _ in range(count):
                try:
                    with Client(service.address, timeout_s=10.0) as client:
                        load.batch(client)
                except ServiceError:
                    refused += 1
                time.sleep(chance.uniform(0.02, 0.4))

        for _ in range(rounds):
            up()
            some(chance.randrange(1, 5))
            begin()
            some(chance.randrange(2, 6))
            time.sleep(chance.uniform(2.0, 8.0) if fault != "hang" else HANG_S - 8.0)
            end()
        up()
        while load._pending is not None:
            some(1)
            up()
        with Client(service.address, timeout_s=20.0) as client:
            found = ended(client, site, load)
        service.end()
    found |= counted(ran, load) | at_cluster(site, load, SITES)
    return found | {"faults": rounds, "not answered": refused, "service ended": ends}


def first_of(*instances):
    """Returns two instances, first the one that leads."""
    while True:
        for one, other in itertools.permutations(instances, 2):
            if select.select([one.process.stdout], [], [], 0.1)[0]:
                one.ready()
                return one, other


def main():
    """Does a run and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.05, help="how much longer sbatch takes before and after, s")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--size", type=int, default=4, help="jobs of a batch")
    parser.add_argument("--part", type=int, default=PART, help="jobs that one change of the store writes, at most")
    parser.add_argument("--standby", action="store_true", help="two instances over a PostgreSQL; the leader is killed")
    parser.add_argument("--freeze", action="store_true", help="with --standby: stop the leader and continue it later")
    parser.add_argument("--fault", choices=FAULTS, help="what fails, as often as --kills says, instead of the service")
    given = parser.parse_args()
    more = {"seed": given.seed, "size": given.size, "part": given.part}
    with tempfile.TemporaryDirectory() as name, slow_site(Path(name), given.pause) as site:
        if given.fault:
            found = fault_chaos(Path(name), site, given.fault, given.kills, **more)
        elif given.standby:
            with PostgresServer() as server:
                found = standby_chaos(Path(name), site, server.database(), given.kills, **more, freeze=given.freeze)
        else:
            found = chaos(Path(name), site, given.kills, **more)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
