"""A real Kubernetes API server on this machine, with etcd and its controllers: for tests where they are installed."""

import base64
import csv
import json
import os
import re
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

import httpx
import yaml

from live.slurm_site import free_ports
from live.waiting import wait_for

COMMANDS = ("etcd", "kube-apiserver", "kube-controller-manager", "openssl")
MISSING = [name for name in COMMANDS if shutil.which(name) is None]
"""Commands that are not installed; docs/live-internals.md says where they come from."""
CONTROLLERS = "job,garbagecollector,namespace,resourcequota,serviceaccount,serviceaccount-token,ttl-after-finished"
CHART = Path(__file__).parents[2] / "examples" / "live" / "helm" / "templates" / "all.yaml"
ISSUER = "https://kubernetes.default.svc"


class KubeSite:
    """A cluster without nodes of its own; as a context, it runs. ``kube_node`` acts as its nodes.

    Objects are kept as JSON in etcd, in which a version to which fields were added keeps them, too.

    Attributes:
        url: Address of the API server.
        authorities: PEM file of its certificate authority.
        web: A client with all rights.
    """

    def __init__(self):
        self.root = Path(tempfile.mkdtemp(prefix="nw-kube-"))
        self._port = free_ports(4)
        self.url = f"https://127.0.0.1:{self._port + 2}"
        self.authorities = self.root / "certs" / "apiserver.crt"
        self._admin = self.user("admin", "system:masters")
        self._controllers = self.user("controllers", "system:masters")
        self._processes, self._server = [], None
        self.web = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *raised):
        self.stop()

    def user(self, name, *groups):
        """Adds a user to those that the API server knows once it starts; returns the file with its token."""
        token = secrets.token_hex(16)
        with (self.root / "tokens.csv").open("a", newline="") as file:
            csv.writer(file).writerow([token, name, name, ",".join(groups)])
        (self.root / f"token-{name}").write_text(token)
        return self.root / f"token-{name}"

    def start(self):
        """Starts etcd, the API server and the controllers, and waits until the namespace default can run pods."""
        key = str(self.root / "sa.key")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        peers, clients = (f"http://127.0.0.1:{self._port + n}" for n in range(2))
        self._spawn(
            "etcd", f"--data-dir={self.root}/etcd", f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}", f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
        )  # fmt: skip
        self.start_server()
        (self.root / "kubeconfig").write_text(yaml.safe_dump(self._kubeconfig()))
        self._spawn(
            "kube-controller-manager", f"--kubeconfig={self.root}/kubeconfig", f"--controllers={CONTROLLERS}",
            f"--service-account-private-key-file={key}", "--leader-elect=false",
            "--kube-api-content-type=application/json", "--kube-api-qps=1000",
            "--kube-api-burst=1000", f"--secure-port={self._port + 3}", "--port=0",
            "--bind-address=127.0.0.1", f"--cert-dir={self.root}/controllers",
        )  # fmt: skip
        wait_for(lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default").get("secrets"), "an account")

    def start_server(self):
        """Starts the API server, or starts it again."""
        key = str(self.root / "sa.key")
        self._server = self._spawn(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._port + 1}", f"--secure-port={self._port + 2}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--cert-dir={self.root}/certs",
            "--authorization-mode=RBAC", f"--token-auth-file={self.root}/tokens.csv",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            f"--service-account-issuer={ISSUER}", "--service-cluster-ip-range=10.0.0.0/24",
            "--storage-media-type=application/json", "--endpoint-reconciler-type=none",
        )  # fmt: skip
        wait_for(self.answers, "the API server")

    def answers(self):
        """Returns whether the API server is ready."""
        assert self._server.poll() is None, (self.root / "kube-apiserver.out").read_text()[-3000:]
        if not (self.root / "certs" / "apiserver.key").is_file():  # it is written last
            return False
        if self.web is None:
            headers = {"Authorization": f"Bearer {self._admin.read_text()}"}
            verify = ssl.create_default_context(cafile=str(self.authorities))
            self.web = httpx.Client(base_url=self.url, verify=verify, headers=headers, timeout=30.0)
        try:
            return self.web.get("/readyz").is_success
        except httpx.HTTPError:
            return False

    def server(self, number):
        """Sends the API server a signal: SIGSTOP, and it stands still; SIGKILL, and it is gone."""
        self._server.send_signal(number)
        if number == signal.SIGKILL:
            self._server.wait()

    def call(self, method, path, content=None, *, kind="application/json", **query):
        """Returns the answer to a request with all rights; fails where it is refused."""
        body = None if content is None else json.dumps(content)
        reply = self.web.request(method, path, content=body, params=query, headers={"Content-Type": kind})
        assert reply.is_success, f"{method} {path}: {reply.text}"
        return reply.json()

    def get(self, path, **query):
        """Returns an object, or an empty one where there is none."""
        reply = self.web.get(path, params=query)
        return {} if reply.status_code == 404 else reply.raise_for_status().json()

    def list(self, path, **query):
        """Returns the objects of a list."""
        return self.get(path, **query).get("items", [])

    def patch(self, path, change):
        """Changes an object by a merge patch."""
        return self.call("PATCH", path, change, kind="application/merge-patch+json")

    def make_namespace(self, name):
        """Makes a namespace with an account ``noonward`` that has the rights of the chart; returns its token's file."""
        at = f"/api/v1/namespaces/{name}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.call("POST", f"{at}/serviceaccounts", {"metadata": {"name": "noonward"}})
        for kind, title in (("Role", "noonward"), ("ClusterRole", f"{name}-noonward")):
            self.allow(kind, title, name, rules_of_chart(kind), {"kind": "ServiceAccount", "name": "noonward",
                                                                 "namespace": name})  # fmt: skip
        wait_for(lambda: self.get(f"{at}/serviceaccounts/default").get("secrets"), "the namespace's account")
        file = self.root / f"token-of-{name}"
        file.write_text(self.token(name))
        return file

    def define(self, group, plural, kind):
        """Has the server keep objects of a kind of their own, whatever they hold; a second time it does nothing."""
        group, version = group.split("/")
        path, name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", f"{plural}.{group}"
        if self.get(f"{path}/{name}"):
            return
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind}
        versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
        spec = {"group": group, "names": names, "scope": "Namespaced", "versions": versions}
        self.call("POST", path, {"metadata": {"name": name}, "spec": spec})
        wait_for(lambda: self.web.get(f"/apis/{group}/{version}/{plural}").is_success, f"the kind {kind}")

    def allow(self, kind, title, namespace, rules, subject):
        """Makes a role and gives it to a subject."""
        group = "rbac.authorization.k8s.io"
        at = f"/apis/{group}/v1" + ("" if kind == "ClusterRole" else f"/namespaces/{namespace}")
        self.call("POST", f"{at}/{kind.lower()}s", {"metadata": {"name": title}, "rules": rules})
        self.call(
            "POST", f"{at}/{kind.lower()}bindings",
            {"metadata": {"name": title}, "roleRef": {"apiGroup": group, "kind": kind, "name": title},
             "subjects": [subject]},
        )  # fmt: skip

    def token(self, namespace, **claims):
        """Returns a new token of the account ``noonward``.

        Args:
            namespace: Namespace.
            claims: Claims of the token that are other ones; it is signed again.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/noonward/token"
        token = self.call("POST", path, {"spec": {}})["status"]["token"]
        if not claims:
            return token
        head, body, _ = token.split(".")
        body = _encoded(json.dumps(json.loads(base64.urlsafe_b64decode(body + "==")) | claims).encode())
        sign = ["openssl", "dgst", "-sha256", "-sign", str(self.root / "sa.key")]
        signed = subprocess.run(sign, input=f"{head}.{body}".encode(), check=True, capture_output=True).stdout
        return f"{head}.{body}.{_encoded(signed)}"

    def stop(self):
        """Ends all processes and removes the folder."""
        if self.web is not None:
            self.web.close()
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def _kubeconfig(self):
        def one(kind, **about):
            return [{"name": "a", kind: about}]

        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": one("cluster", **{"server": self.url, "certificate-authority": str(self.authorities)}),
            "users": one("user", token=self._controllers.read_text()),
            "contexts": one("context", cluster="a", user="a"),
        }  # fmt: skip

    def _spawn(self, *command):
        with (self.root / f"{command[0]}.out").open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ}, start_new_session=True
            )
        self._processes.append(process)
        return process


def rules_of_chart(kind):
    """Returns the rules of the chart's Role or ClusterRole, without those that stand there only if they are wanted."""
    document = next(each for each in CHART.read_text().split("\n---\n") if f"\nkind: {kind}\n" in each)
    wanted = re.sub(r"\{\{- with .*?\{\{- end \}\}", "", document.split("\nrules:\n")[1], flags=re.DOTALL)
    return yaml.safe_load(re.sub(r"^.*\{\{.*$", "", wanted, flags=re.MULTILINE))


def _encoded(content):
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def in_hours(hours):
    """Returns a time of a token's claims."""
    return int(time.time() + 3600 * hours)
