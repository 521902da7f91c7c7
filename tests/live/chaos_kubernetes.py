"""The chaos run over a real Kubernetes API server: a service that is killed again and again under load.

``python tests/live/chaos_kubernetes.py --kills 20`` does the full run; tests do a short one.
"""

import argparse
import collections
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from live.chaos import SCENARIO, SERVICE, SITES, Load, counted, explained
from live.kube_node import Acting
from live.kube_real import RealCluster
from live.kube_site import KubeSite
from live.process import Process
from live.waiting import wait_for
from noonward.live.client import Client, ServiceError
from noonward.live.store.schema import ENDED


def chaos(folder, site, kills, *, seed=3, size=4):
    """Kills a service over two namespaces again and again at random moments while batches come in.

    Args:
        folder: An empty folder.
        site: Cluster (``kube_site.KubeSite``).
        kills: How often it is killed.
        seed: Seed of the moments.
        size: Jobs of a batch.

    Returns:
        What came out: by the marks that jobs left, and by what the API server says of Jobs and pods.
    """
    chance, ran = random.Random(seed), folder / "ran"
    ran.mkdir()
    (folder / "chaos.yaml").write_text(SCENARIO)
    load = Load(ran, size)
    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(contextlib.closing(RealCluster(site))) for _ in SITES]
        for cluster in clusters:
            for name in ("a", "b"):
                cluster.add_node(name, 4)
        config = {
            "scenario": str(folder / "chaos.yaml"), "policy": "local-fcfs", "folder": str(folder / "live"), "port": 0,
            "poll_s": 60, "without_tokens": True,
            "sites": {name: {
                "executor": "kubernetes", "url": each.url, "token_file": str(each.token_file),
                "authorities": str(each.authorities), "namespace": each.namespace, "image": "python:3",
                "gpus_per_node": 4, "node_selector": {each.nodes.label: each.namespace},
            } for name, each in zip(SITES, clusters, strict=True)},
        }  # fmt: skip
        for cluster in clusters:
            stack.enter_context(Acting(cluster.nodes))
        for _ in range(kills):
            with Process("-c", SERVICE, json.dumps(config)) as service, Client(service.address, timeout_s=5.0) as told:
                for _ in range(chance.randrange(1, 5)):
                    load.batch(told)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        service.process.wait(chance.uniform(0.02, 0.6))
                if chance.random() < 0.5:  # in the middle of a batch
                    kill = f"sleep {chance.uniform(0, 0.01):.4f}; kill -9 {service.process.pid}"
                    with subprocess.Popen(["sh", "-c", kill]), contextlib.suppress(ServiceError):
                        load.batch(told)
                service.end(signal.SIGKILL)
        with Process("-c", SERVICE, json.dumps(config)) as service, Client(service.address) as client:
            while load._pending is not None:
                load.batch(client)
            with explained(lambda: f"{client.sites()}\n{list(client.events())[-20:]}"):
                wait_for(lambda: client.service().open_jobs == 0, "the end of all jobs", 120.0)
            states = {name: len(client.jobs(state=name, limit=1000)) for name in ENDED}
            strays = sum(event.kind == "stray cancelled" for event in client.events())
        return (
            counted(ran, load) | at_cluster(clusters, load)
            | {"kills": kills, "states": {name: count for name, count in states.items() if count},
               "strays cancelled": strays}
        )  # fmt: skip


def at_cluster(clusters, load):
    """Returns what the API server says of the acknowledged jobs, whose numbers are in the names of its Jobs."""
    jobs = [job for cluster in clusters for job in cluster.jobs()]
    done = collections.Counter(number(job) for job in jobs if job["status"].get("succeeded"))
    started = collections.Counter(name for cluster in clusters for name in cluster.nodes.ran)
    return {
        "done at the cluster": done.total(),
        "lost at the cluster": len(set(load.acknowledged.values()) - done.keys()),
        "doubled at the cluster": sum(count > 1 for count in done.values()),
        "pods doubled": sum(count > 1 for count in started.values()),
        "not ended at the cluster": len(jobs) - done.total(),
    }


def number(job):
    """Returns the number that a Job has at the service."""
    return int(job["metadata"]["name"].split("-")[2])


def main():
    """Does a run and prints what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--size", type=int, default=4, help="jobs of a batch")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, KubeSite() as site:
        found = chaos(Path(name), site, given.kills, seed=given.seed, size=given.size)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
