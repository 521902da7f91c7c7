"""The Kubernetes executor against a real API server and controllers of Jobs: what no stand-in can say.

The cases that ``test_kubernetes.py`` has for its stand-in run against the real one too, there.
"""

import signal

import pytest

from live.chaos_kubernetes import chaos
from live.kube_real import RealCluster
from live.kube_site import MISSING, in_hours
from live.waiting import wait_for
from noonward.live.executors import web
from noonward.live.executors.kubernetes import KubernetesExecutor
from noonward.live.executors.protocol import ClusterError, Order, RefusedError
from noonward.live.handover import LOST_POLLS
from noonward.live.requests import JobRequest
from noonward.live.terms import Terms

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"no Kubernetes API server: {', '.join(MISSING)} missing"),
    pytest.mark.xdist_group("kubernetes"),
]


@pytest.fixture
def cluster(kube_site):
    made = RealCluster(kube_site)
    made.add_node("main", 4)
    yield made
    made.close()


@pytest.fixture
def executor(cluster):
    webs = []

    def make(**given):
        webs.append(
            web.ClusterWeb("the cluster", cluster.url, token_file=cluster.token_file, authorities=cluster.authorities)
        )
        more = {"node_selector": {cluster.nodes.label: cluster.namespace}} | given
        return KubernetesExecutor(
            lambda posix_s: posix_s, webs[-1], namespace=cluster.namespace, image="python:3", gpus_per_node=4, **more
        )

    yield make
    for each in webs:
        each.close()


def order(token="nw-t-1-0", **more):
    about = {"name": "a", "command": "true", "gpus": 1, "job": 1} | more
    return Order(token=token, run_s=9.0, start_s=0.0, **about)


def started(kube, cluster, one):
    """Hands a job over and has its pod run; returns the order with its handle."""
    one = Order(**{**vars(one), "handle": kube.submit_held(one)})
    kube.release(one)
    cluster.run(one.token)
    return one


def ended(kube, cluster, one):
    """Lets the nodes act until a job has ended; returns what the cluster says of it."""

    def over():
        cluster.nodes.step()
        return kube.statuses([one])[0].ended_s is not None

    wait_for(over, "the job's end")
    return kube.statuses([one])[0]


def test_a_command_runs_as_it_was_written(executor, cluster, tmp_path):
    kube = executor()
    one = order(
        command=f"A=$$\r\necho $NOONWARD_JOB $(echo b) $V {'# ' + 'x' * 50_000}\r\necho ${{A}}$(V) >> /dev/null"
        f"\necho $NOONWARD_JOB $(echo b) $V $$ > {tmp_path}/ran".replace("\r", ""),
        name="Ä\n\x01 😀 / : = " * 100,
        terms=Terms(environment={"V": "$(NOONWARD_JOB) $$"}, workdir="/tmp"),
    )
    done = ended(kube, cluster, started(kube, cluster, one))
    assert (done.phase, done.exit_code) == ("done", 0)
    number, letter, *value, process = (tmp_path / "ran").read_text().split()
    assert (number, letter, value) == ("1", "b", ["$(NOONWARD_JOB)", "$$"])
    assert process.isdigit()


def test_a_failure_a_time_limit_and_a_deletion_are_three_things(executor, cluster):
    kube = executor()
    bad = started(kube, cluster, order("nw-t-1-0", command="exit 7"))
    slow = started(kube, cluster, order("nw-t-2-0", command="sleep 60", terms=Terms(time_limit_s=1.0)))
    gone = started(kube, cluster, order("nw-t-3-0", command="sleep 60"))
    assert kube.usable_gpus(3) == 4
    cluster.delete(gone.token)
    found = ended(kube, cluster, bad)
    assert (found.phase, found.exit_code) == ("failed", 7)
    limited = ended(kube, cluster, slow)
    assert (limited.phase, limited.reason.split(":")[0]) == ("failed", "DeadlineExceeded")
    assert kube.statuses([gone]) == []
    kube.cancel(slow)
    wait_for(lambda: cluster.nodes.step() or not cluster.nodes.pods(slow.token), "the end of its pods")


def test_an_image_that_is_fetched_holds_its_gpus(executor, cluster):
    kube = executor()
    cluster.add_pod("theirs", "main", 3, status={"phase": "Pending"})
    assert kube.usable_gpus(0) == 1


def test_many_jobs_are_handed_over_while_the_controller_writes_their_status(executor, cluster):
    kube = executor()
    orders = [order(f"nw-t-{n}-0") for n in range(40)]
    for one in orders:
        kube.release(Order(**{**vars(one), "handle": kube.submit_held(one)}))
    assert len(cluster.has_started()) == 40


def handing_over(service, executor):
    """Returns a service whose site north is the cluster, with a function that submits a job there."""
    live = service("local-fcfs")
    live.controller.agents[0].executor = executor()

    def submit(**given):
        return live.submit(JobRequest(**{"name": "a", "work": 600.0, "origin": "north", "command": "true"} | given))[0]

    return live, submit


def row(live, job):
    return live.store.read("SELECT state, reason FROM jobs WHERE id = ?", job)[0]


def test_a_job_that_the_server_refuses_has_failed_with_its_words_and_the_next_is_taken(service, executor, cluster):
    live, submit = handing_over(service, executor)
    large, small = submit(environment={"A": "x" * 3_200_000}), submit()
    live.set_time(60.0)
    live.controller.decide()
    live.controller.deliver(0)
    state, reason = row(live, large)
    assert (state, "Request entity too large" in reason) == ("failed", True)
    assert row(live, small)["state"] == "starting"
    assert len(cluster.names()) == 1


def test_a_job_that_somebody_deleted_is_lost(service, executor, cluster):
    live, submit = handing_over(service, executor)
    job = submit()
    live.set_time(60.0)
    live.controller.decide()
    live.controller.deliver(0)
    cluster.delete(cluster.names()[0])
    for _ in range(LOST_POLLS):
        live.controller.track(0)
    assert row(live, job)["state"] == "lost"


def test_jobs_are_made_as_users_who_may(executor, cluster):
    kube, namespace, title = executor(as_user="oidc:{user}"), cluster.namespace, "submitters"
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "patch", "delete"]}]
    account = {"kind": "ServiceAccount", "name": "noonward", "namespace": namespace}
    may = [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"],
            "resourceNames": ["oidc:ann", "oidc:bob"]}]  # fmt: skip
    cluster.site.allow("Role", title, namespace, rules, {"kind": "User", "name": "oidc:ann"})
    cluster.site.allow("ClusterRole", f"{namespace}-users", namespace, may, account)
    ann = order("nw-t-1-0", owner="ann")
    ann = started(kube, cluster, ann)
    kube.cancel(ann)
    assert kube.statuses([ann])[0].phase == "cancelled"
    with pytest.raises(RefusedError, match='User "oidc:bob" cannot create resource "jobs"'):
        kube.submit_held(order("nw-t-2-0", owner="bob"))
    with pytest.raises(RefusedError, match=r'users "oidc:eve" is forbidden: .* cannot impersonate'):
        kube.submit_held(order("nw-t-3-0", owner="eve"))
    assert cluster.names() == []


@pytest.mark.parametrize("as_user", [None, "{user}"])
def test_a_full_quota_puts_a_job_off(executor, cluster, as_user):
    kube, site, namespace = executor(as_user=as_user), cluster.site, cluster.namespace
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    site.call("POST", path, {"metadata": {"name": "q"}, "spec": {"hard": {"count/jobs.batch": "0"}}})
    wait_for(lambda: site.get(f"{path}/q")["status"].get("hard"), "the quota")
    account = {"kind": "ServiceAccount", "name": "noonward", "namespace": namespace}
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    site.allow("ClusterRole", f"{namespace}-all", namespace, everything, account)
    site.allow("Role", "all", namespace, everything, {"kind": "User", "name": "ann"})
    with pytest.raises(ClusterError, match="exceeded quota: q") as told:
        kube.submit_held(order(owner="ann"))
    assert not isinstance(told.value, RefusedError)
    site.call("DELETE", f"{path}/q")
    wait_for(lambda: kube.submit_held(order(owner="ann")) if not site.get(f"{path}/q") else None, "the submission")


def test_a_token_that_is_wrong_or_has_expired_is_no_answer_and_a_new_one_is_read(executor, cluster):
    kube, site = executor(), cluster.site
    for token in ("wrong", site.token(cluster.namespace, exp=in_hours(-1))):
        cluster.token_file.write_text(token)
        with pytest.raises(ClusterError, match="Unauthorized"):
            kube.submit_held(order())
    cluster.token_file.write_text(site.token(cluster.namespace, exp=in_hours(1)))
    assert kube.submit_held(order())


def test_a_server_that_stands_still_or_is_gone_is_no_answer_and_forgets_nothing(executor, cluster, monkeypatch):
    monkeypatch.setattr(web, "TIMEOUT_S", 1.0)
    kube, site = executor(), cluster.site
    one = started(kube, cluster, order(command="sleep 60"))
    site.server(signal.SIGSTOP)
    try:
        with pytest.raises(ClusterError, match="did not answer"):
            kube.statuses([one])
        with pytest.raises(ClusterError, match="did not answer"):
            kube.submit_held(order("nw-t-2-0"))
    finally:
        site.server(signal.SIGCONT)
    wait_for(site.answers, "the API server")
    assert kube.submit_held(order("nw-t-2-0")) == kube.find(order("nw-t-2-0"))
    site.server(signal.SIGKILL)
    with pytest.raises(ClusterError, match="did not answer"):
        kube.statuses([one])
    site.start_server()
    assert [status.phase for status in kube.statuses([one])] == ["running"]
    assert sorted(cluster.names()) == ["nw-t-1-0", "nw-t-2-0"]


@pytest.mark.slow
def test_killed_under_load_nothing_is_lost_and_nothing_doubled(kube_site, tmp_path):
    found = chaos(tmp_path, kube_site, kills=2)
    assert found["acknowledged"] >= 8
    assert (found["lost"], found["doubled"], found["not asked for"]) == (0, 0, 0)
    assert (found["lost at the cluster"], found["doubled at the cluster"], found["pods doubled"]) == (0, 0, 0)
    assert found["not ended at the cluster"] == 0
    assert set(found["states"]) == {"done"}
