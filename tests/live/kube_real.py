"""A namespace of a real API server, which tests move on in the words of ``kube_server.KubeServer``."""

import itertools

from live.kube_node import GPU, KubeNodes
from live.waiting import wait_for

_NUMBERS = itertools.count()
_GROUPS = {
    "jobs": "apis/batch/v1",
    "jobsets": "apis/jobset.x-k8s.io/v1alpha2",
    "workloads": "apis/kueue.x-k8s.io/v1beta1",
}
_KINDS = {"jobsets": "JobSet", "workloads": "Workload"}


class RealCluster:
    """A new namespace and two nodes of four GPUs; JobSets and workloads are kept as they are, by no controller.

    Args:
        site: Cluster (``kube_site.KubeSite``).
    """

    def __init__(self, site):
        self.site, self.url, self.authorities = site, site.url, site.authorities
        self.namespace = f"ai-{next(_NUMBERS)}"
        self.token_file = site.make_namespace(self.namespace)
        self.nodes = KubeNodes(site, self.namespace)
        for plural, kind in _KINDS.items():
            site.define(_GROUPS[plural].removeprefix("apis/"), plural, kind)

    def close(self):
        """Removes nodes and namespace."""
        self.nodes.remove()
        self.site.call("DELETE", f"/api/v1/namespaces/{self.namespace}")

    def job(self, name, plural="jobs"):
        return self.site.get(self._path(plural, name)) or None

    def jobs(self):
        """Returns the Jobs."""
        return self.site.list(self._path("jobs"))

    def names(self):
        return [one["metadata"]["name"] for one in self.jobs()]

    def delete(self, name):
        """Somebody deletes a Job and its pods."""
        self.site.call("DELETE", self._path("jobs", name), {"propagationPolicy": "Background"})

    def has_started(self):
        return [one["metadata"]["name"] for one in self.jobs() if not one["spec"]["suspend"]]

    def run(self, name):
        """Lets the pods of a Job run on a node that has room for them."""
        if not self.site.list("/api/v1/nodes", labelSelector=f"{self.nodes.label}={self.namespace}"):
            self.add_node("main", 4)
        wait_for(lambda: self.nodes.pods(name), "the Job's pod")
        for _ in range(2):
            self.nodes.step(ends=False)
        wait_for(lambda: self._status(name).get("ready") == self.job(name)["spec"]["parallelism"], "a ready pod")

    def end(self, name, kind="Complete", reason="", plural="jobs"):
        if plural == "jobs":
            self._end(name, 0)
        else:
            condition = {"type": kind, "status": "True", "reason": reason, "message": "m",
                         "lastTransitionTime": "2026-03-01T00:20:00Z"}  # fmt: skip
            self.set_status(name, {"conditions": [condition]}, plural)

    def fail(self, name, code):
        self._end(name, code)

    def own(self, name):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": self.job(name)["metadata"]["uid"]}
        self.site.call(
            "POST", self._path("workloads"),
            {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "spec": {"active": True},
             "metadata": {"name": f"job-{name}", "ownerReferences": [owner]}},
        )  # fmt: skip

    def admit(self, name):
        self.site.patch(self._path("jobs", name), {"spec": {"suspend": False}})

    def suspend(self, name):
        self.site.patch(self._path("jobs", name), {"spec": {"suspend": True}})

    def ending(self, name):
        """Waits until the pods of a suspended Job are being deleted."""
        wait_for(lambda: not self._status(name).get("active"), "the Job's end")
        assert all("deletionTimestamp" in pod["metadata"] for pod in self.nodes.pods(name))

    def stopped(self, name):
        self.ending(name)
        self.nodes.step()
        wait_for(lambda: not self.nodes.pods(name), "the end of pods")

    def set_status(self, name, status, plural="jobs"):
        self.site.patch(self._path(plural, name), {"status": status})

    def add_node(self, name, gpus, **about):
        self.nodes.add(f"{self.namespace}-{name}", gpus, **about)

    def add_pod(self, name, node, gpus, labels=(), status=None):
        container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        about = {"name": name, "labels": dict(labels)}
        spec = {"nodeName": f"{self.namespace}-{node}", "containers": [container]}
        self.site.call("POST", path, {"metadata": about, "spec": spec})
        self.site.patch(f"{path}/{name}/status", {"status": status or {"phase": "Running"}})

    def _end(self, name, code):
        for pod in self.nodes.pods(name):
            self.nodes.end(pod, code)
        wait_for(lambda: any(each["type"] != "Suspended" for each in self._status(name)["conditions"]), "the Job's end")

    def _status(self, name):
        return self.job(name)["status"]

    def _path(self, plural, name=None):
        return f"/{_GROUPS[plural]}/namespaces/{self.namespace}/{plural}" + ("" if name is None else f"/{name}")
