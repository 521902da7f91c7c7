"""A stand-in for a Kubernetes API server on the loopback: Jobs, JobSets, nodes and pods, as the real one keeps them."""

import copy
import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

RELEASED, NOW = "2026-03-01T00:05:00Z", "2026-03-01T00:10:00Z"
"""When a Job was released, and when its pods began to run."""


class KubeServer:
    """Keeps objects by plural and name; ``run``, ``end`` and ``fail`` are what its controllers would do.

    Attributes:
        holds: Whether it knows a Job's ``suspend``; versions before 1.21 leave it out.
    """

    namespace, authorities = "ai", None

    def __init__(self, page=2):
        self.objects, self.version, self.page = {}, 0, page
        self.down, self.forbidden, self.has_jobsets, self.holds = False, False, True, True
        self.calls, self.started = [], []
        self.impersonated, self.barred, self.logs = [], set(), {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                server.calls.append((self.command, parts.path))
                user = self.headers.get("Impersonate-User")
                server.impersonated.append((self.command, parts.path, user))
                if server.down:
                    status, found = 500, {"message": "etcd is away"}
                elif self.headers.get("Authorization") != "Bearer right":
                    status, found = 401, {"message": "Unauthorized"}
                elif user in server.barred:
                    status, found = 403, {"message": f"{user} may not create jobs"}
                else:
                    status, found = server.answer(
                        self.command, parts.path.strip("/").split("/"), query, body, self.headers.get("Content-Type")
                    )
                content = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method, path, query, body, kind):
        if path[:2] == ["api", "v1"]:
            if self.forbidden:
                return 403, {"message": "nodes is forbidden"}
            if path[-1] == "log":
                return self._log(path[-2], query)
            wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
            shown = [
                one
                for (plural, _), one in self.objects.items()
                if plural == path[-1]
                and (path[2] != "namespaces" or wanted.items() <= one["metadata"]["labels"].items())
                and _of_phase(one, query.get("fieldSelector", ""))
            ]
            return self._list(shown, query)
        plural = path[5]
        if plural == "jobsets" and not self.has_jobsets:
            return 404, {"message": "the server could not find the requested resource"}
        if len(path) == 6 and method == "GET":
            selector = query.get("labelSelector", "")
            wanted = dict(part.split("=") for part in selector.split(",") if part)
            shown = [
                one
                for (held, _), one in self.objects.items()
                if held == plural and wanted.items() <= one["metadata"].get("labels", {}).items()
            ]
            return self._list(shown, query)
        if method == "POST":
            return self._make(plural, body, query)
        one = self.objects.get((plural, path[6]))
        if one is None:
            return 404, {"message": "not found"}
        if method == "PATCH":
            return self._change(one, body, kind)
        if method == "DELETE":
            if body.get("preconditions", {}).get("uid", one["metadata"]["uid"]) != one["metadata"]["uid"]:
                return 409, {"message": "the uid is another one"}
            del self.objects[plural, path[6]]
        shown = copy.deepcopy(one)
        self._note(one)
        return 200, shown

    def _list(self, items, query):
        first = int(query.get("continue", 0))
        more = str(first + self.page) if first + self.page < len(items) else ""
        return 200, {"items": items[first : first + self.page], "metadata": {"continue": more}}

    def _log(self, name, query):
        """The last lines of a pod's log, and of these the first bytes, as the API server does it."""
        log = self.logs.get(name)
        if log is None:
            return 400, {"message": "the container is waiting to start"}
        return 200, b"".join(log.splitlines(True)[-int(query["tailLines"]) :])[: int(query["limitBytes"])]

    def _make(self, plural, body, query):
        if plural == "jobs":
            kubernetes_validate.validate(body, "1.31", strict=True)
        else:
            for each in body["spec"]["replicatedJobs"]:  # JobSet has no schema there; the Jobs inside it have
                inner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **each["template"]}
                kubernetes_validate.validate(inner, "1.31", strict=True)
        key = plural, body["metadata"]["name"]
        if key in self.objects:
            return 409, {"message": "already exists"}
        if not self.holds:
            del body["spec"]["suspend"]
        if query.get("dryRun") == "All":
            return 201, body
        self.version += 1
        body["metadata"] |= {"uid": f"uid-{self.version}", "resourceVersion": str(self.version),
                             "creationTimestamp": NOW}  # fmt: skip
        body["status"] = {}
        self.objects[key] = body
        return 201, body

    def _change(self, one, body, kind):
        assert kind == "application/merge-patch+json"
        version = one["metadata"].get("resourceVersion")
        if body.get("metadata", {}).pop("resourceVersion", version) != version:
            return 409, {"message": "the object has been modified"}
        notes = one["metadata"].setdefault("annotations", {}) | body.get("metadata", {}).get("annotations", {})
        one["metadata"]["annotations"] = {name: value for name, value in notes.items() if value is not None}
        one["metadata"].setdefault("labels", {}).update(body.get("metadata", {}).get("labels", {}))
        one["spec"].update(body.get("spec", {}))
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        if one["spec"].get("suspend") is False:
            self.started.append(one["metadata"]["name"])
        return 200, one

    # What controllers and Kueue do.

    def _note(self, one):
        """The controller notes that it has seen an object, shortly after it was made: it has another version then."""
        if one.get("status") == {}:
            self.version += 1
            one["status"] = {"ready": 0, "conditions": [{"type": "Suspended", "status": "True"}]}
            one["metadata"]["resourceVersion"] = str(self.version)

    def job(self, name, plural="jobs"):
        """Returns an object, or None."""
        return self.objects.get((plural, name))

    def has_started(self):
        """Returns the names of the objects that are not held, each as often as it was released."""
        return self.started

    def names(self):
        """Returns the names of the Jobs."""
        return [name for plural, name in self.objects if plural == "jobs"]

    def suspend(self, name):
        """Kueue suspends a Job whose workload is not active."""
        self.objects["jobs", name]["spec"]["suspend"] = True

    def ending(self, name):
        """The pods of a suspended Job are ending."""
        self.objects["jobs", name]["status"] = {"terminating": 1}

    def stopped(self, name):
        """The pods of a suspended Job have ended."""
        self.objects["jobs", name]["status"] = {"terminating": 0}
        self.objects = {key: one for key, one in self.objects.items() if key != ("pods", f"{name}-x")}

    def set_status(self, name, status, plural="jobs"):
        """A controller writes a status."""
        self.objects[plural, name]["status"] = status

    def admit(self, name, plural="jobs"):
        """Kueue resumes an object that its queue has admitted."""
        self.objects[plural, name]["spec"]["suspend"] = False

    def own(self, name):
        """Kueue makes a workload for an object that was given to its queue."""
        owner = {"uid": self.objects["jobs", name]["metadata"]["uid"]}
        self.objects["workloads", f"job-{name}"] = {
            "metadata": {"name": f"job-{name}", "ownerReferences": [owner]}, "spec": {"active": True},
        }  # fmt: skip

    def run(self, name):
        one = self.objects["jobs", name]
        one["status"] = {"startTime": RELEASED, "active": 1, "ready": one["spec"]["parallelism"]}
        labels = {**one["metadata"]["labels"], "job-name": name}
        state = {"running": {"startedAt": NOW}}
        self.add_pod(f"{name}-x", "a", 1, labels, status={"phase": "Running", "containerStatuses": [{"state": state}]})

    def end(self, name, kind="Complete", reason="CompletionsReached", plural="jobs"):
        condition = {"type": kind, "status": "True", "reason": reason, "message": "m",
                     "lastTransitionTime": "2026-03-01T00:20:00Z"}  # fmt: skip
        self.objects[plural, name]["status"] |= {"startTime": RELEASED, "conditions": [condition]}

    def fail(self, name, code):
        """The command of a Job ends with an exit code; its pod stays."""
        state = {"terminated": {"exitCode": code, "startedAt": NOW}}
        self.add_pod(f"{name}-x", "a", 1, {"job-name": name},
                     status={"phase": "Failed", "containerStatuses": [{"state": state}]})  # fmt: skip
        self.end(name, "Failed", "BackoffLimitExceeded")

    def add_node(self, name, gpus, ready=True, unschedulable=False):
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        self.objects["nodes", name] = {
            "metadata": {"name": name}, "spec": {"unschedulable": unschedulable},
            "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions},
        }  # fmt: skip

    def add_pod(self, name, node, gpus, labels=(), status=None, **about):
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        self.objects["pods", name] = {
            "metadata": {"name": name, "labels": dict(labels), **about},
            "spec": {"nodeName": node, "containers": [container]}, "status": status or {"phase": "Running"},
        }  # fmt: skip


def _of_phase(one, selector):
    """Returns whether an object fits a field selector of phases."""
    phase = one.get("status", {}).get("phase")
    for part in filter(None, selector.split(",")):
        name, _, wanted = part.partition("=")
        if (name.endswith("!")) == (phase == wanted):
            return False
    return True


def posix(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC).timestamp()
