"""Nodes of a real API server, acted by a test: pods are bound, really run as processes, and end with their codes."""

import os
import subprocess
import threading
from datetime import UTC, datetime

GPU = "nvidia.com/gpu"


def expanded(text, variables):
    """Returns a text as the kubelet hands it to a container: ``$(NAME)`` replaced if known, ``$$`` a ``$``."""
    made, n = "", 0
    while n < len(text):
        after = text[n + 1 : n + 2]
        if text[n] != "$" or not after:
            made, n = made + text[n], n + 1
        elif after == "(" and (close := text.find(")", n)) > 0:
            name = text[n + 2 : close]
            made, n = made + variables.get(name, f"$({name})"), close + 1
        else:
            made, n = made + ("$" if after == "$" else f"${after}"), n + 2
    return made


class KubeNodes:
    """Some nodes of a cluster, and what their kubelets and the scheduler do in one namespace.

    ``step`` does what is to be done now; pods that fit nowhere wait.

    Args:
        site: Cluster (``kube_site.KubeSite``).
        namespace: Namespace whose pods they run.

    Attributes:
        ran: Names of the Jobs whose pods were run, one for each pod.
        label: Label of the nodes, whose value is the namespace.
        grace: Whether a pod that is deleted while it runs is let go of at once.
    """

    label = "noonward-test"

    def __init__(self, site, namespace):
        self.site, self.namespace, self.ran, self.grace = site, namespace, [], True
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._processes, self._free = {}, {}

    def add(self, name, gpus, *, ready=True, unschedulable=False):
        """Adds a node; its label says of which namespace it is."""
        about = {"name": name, "labels": {self.label: self.namespace}}
        self.site.call("POST", "/api/v1/nodes", {"metadata": about, "spec": {"unschedulable": unschedulable}})
        of_node = {GPU: str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"}
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        self._status(f"/api/v1/nodes/{name}", capacity=of_node, allocatable=of_node, conditions=conditions)
        if ready and not unschedulable:
            self._free[name] = gpus

    def remove(self):
        """Removes the nodes and kills what runs there."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        for node in self.site.list("/api/v1/nodes", labelSelector=f"{self.label}={self.namespace}"):
            self.site.call("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")

    def pods(self, job=None):
        """Returns the pods, or those of one Job."""
        return self.site.list(self._pods, **({} if job is None else {"labelSelector": f"job-name={job}"}))

    def step(self, ends=True):
        """Binds, starts and ends pods.

        Args:
            ends: Whether pods whose command has ended say so now.
        """
        pods = self.pods()
        for pod in pods:
            name, status = pod["metadata"]["name"], pod["status"]["phase"]
            if "deletionTimestamp" in pod["metadata"]:
                if self.grace:
                    self.let_go(pod)
            elif status == "Pending" and "nodeName" not in pod["spec"]:
                self._bind(pod, pods)
            elif status == "Pending":
                self._start(pod)
            elif status == "Running" and ends and self._processes[name].poll() is not None:
                self.end(pod, self._processes[name].returncode)

    def let_go(self, pod):
        """Ends a pod that is being deleted, as its kubelet does after its grace period."""
        name = pod["metadata"]["name"]
        if name in self._processes:
            self._processes[name].kill()
            self._processes[name].wait()
        self.site.call("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})

    def end(self, pod, code, reason=None):
        """Says that a pod has ended with an exit code."""
        began = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        said = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "startedAt": began,
                "finishedAt": _now()}  # fmt: skip
        self._say(pod, "Failed" if code else "Succeeded", "False", {"terminated": said})

    def _bind(self, pod, pods):
        used = dict.fromkeys(self._free, 0)
        for each in pods:
            if each["spec"].get("nodeName") in used and each["status"]["phase"] in ("Pending", "Running"):
                used[each["spec"]["nodeName"]] += _gpus(each)
        node = next((node for node, gpus in self._free.items() if gpus - used[node] >= _gpus(pod)), None)
        if node is not None:
            name = pod["metadata"]["name"]
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            self.site.call("POST", f"{self._pods}/{name}/binding", {"metadata": {"name": name}, "target": target})
            pod["spec"]["nodeName"] = node

    def _start(self, pod):
        container = pod["spec"]["containers"][0]
        given = {}
        for each in container.get("env", ()):
            given[each["name"]] = expanded(each.get("value", ""), given)
        words = [expanded(word, given) for word in container["command"]]
        self.ran.append(pod["metadata"]["labels"]["job-name"])
        self._processes[pod["metadata"]["name"]] = subprocess.Popen(words, env={**os.environ, **given})
        self._say(pod, "Running", "True", {"running": {"startedAt": _now()}})

    def _say(self, pod, phase, ready, state):
        container = pod["spec"]["containers"][0]
        said = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
                "ready": ready == "True", "state": state}  # fmt: skip
        self._status(
            f"{self._pods}/{pod['metadata']['name']}", phase=phase, containerStatuses=[said],
            conditions=[{"type": "Ready", "status": ready}],
        )  # fmt: skip

    def _status(self, path, **status):
        self.site.patch(f"{path}/status", {"status": status})


class Acting:
    """Lets nodes act again and again in a thread of their own; as a context."""

    def __init__(self, nodes):
        self._nodes, self._over = nodes, threading.Event()
        self._thread = threading.Thread(target=self._act)
        self.error = None

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *raised):
        self._over.set()
        self._thread.join()
        if self.error is not None and not any(raised):
            raise self.error

    def _act(self):
        try:
            while not self._over.wait(0.2):
                self._nodes.step()
        except Exception as error:
            self.error = error


def _gpus(pod):
    return sum(int(each.get("resources", {}).get("limits", {}).get(GPU, 0)) for each in pod["spec"]["containers"])


def _now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
