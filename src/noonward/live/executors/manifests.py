"""What Kubernetes is asked to run: a suspended Job, or for a gang of several nodes a suspended JobSet."""

from __future__ import annotations

import math
from typing import Any, Final

from noonward.live.executors.environment import own_variables
from noonward.live.executors.protocol import Order
from noonward.live.terms import Terms

MANAGED: Final = {"app.kubernetes.io/managed-by": "noonward"}
"""Label of every object of this product."""
QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label that gives an object to a queue of Kueue."""
USER: Final = "noonward/user"
"""Annotation with the user that an object was made as, where that is not the service's account."""
LONGEST_S: Final = 2**63 // 10**9
"""Longest time limit that a Job keeps, s: its controller counts in ns and ends one of 300 years at once."""
WORKERS: Final = "workers"
"""Name of the replicated job of a gang."""


def manifest(
    order: Order,
    *,
    image: str,
    gpu_resource: str,
    gpus_per_node: int,
    node_selector: dict[str, str],
    requests: dict[str, str],
    keep_ended_s: float | None = None,
) -> dict[str, Any]:
    """Returns the object of an order, suspended and in no queue.

    Args:
        order: The order; its token is the object's name.
        image: Container image.
        gpu_resource: Name of the GPUs as a resource.
        gpus_per_node: GPUs of a node; larger gangs take as many nodes as they need, each the same number of GPUs.
        node_selector: Labels of the nodes.
        requests: Further resources of each container, such as memory.
        keep_ended_s: Seconds for which the cluster keeps the object once the job has ended; None: for ever.
    """
    nodes = -(-order.gpus // gpus_per_node)
    meta = {"name": order.token, "labels": dict(MANAGED), "annotations": {"noonward/name": order.name}}
    pods = _pods(order, nodes, image, gpu_resource, node_selector, requests)
    ends = {} if keep_ended_s is None else {"ttlSecondsAfterFinished": round(keep_ended_s)}
    if nodes == 1:
        spec = {"suspend": True, **ends, **_job(pods, 1, order.terms)}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    workers = {"name": WORKERS, "replicas": 1, "template": {"spec": _job(pods, nodes, order.terms)}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {"suspend": True, **ends, "failurePolicy": {"maxRestarts": 0}, "replicatedJobs": [workers]},
    }


def _job(pods: dict[str, Any], nodes: int, terms: Terms) -> dict[str, Any]:
    """Returns the specification of a Job: nothing is run twice, and a disrupted pod fails it by a reason of its own."""
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    limit_s = math.inf if terms.time_limit_s is None else max(1, math.ceil(terms.time_limit_s))
    limit = {"activeDeadlineSeconds": limit_s} if limit_s <= LONGEST_S else {}
    return {
        **limit,
        "backoffLimit": 0,
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed" if nodes > 1 else "NonIndexed",
        "podFailurePolicy": {"rules": [disrupted]},
        "template": pods,
    }


def _pods(
    order: Order, nodes: int, image: str, gpu_resource: str, node_selector: dict[str, str], requests: dict[str, str]
) -> dict[str, Any]:
    gpus = str(-(-order.gpus // nodes))
    container = {
        "name": "job",
        "image": order.terms.image or image,
        "command": ["/bin/sh", "-c", _literal(order.command or ":")],
        "env": [{"name": name, "value": _literal(value)} for name, value in own_variables(order).items()],
        "resources": {"requests": {**requests, gpu_resource: gpus}, "limits": {gpu_resource: gpus}},
    }
    if order.terms.workdir is not None:
        container["workingDir"] = order.terms.workdir
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if node_selector:
        spec["nodeSelector"] = node_selector
    return {"metadata": {"labels": dict(MANAGED)}, "spec": spec}


def _literal(text: str) -> str:
    """Returns a text that a container is given as it is: of two ``$`` Kubernetes leaves one out.

    It would replace ``$(NAME)`` by a variable and ``$$``, to a shell its process, by ``$``.
    """
    return text.replace("$", "$$")
