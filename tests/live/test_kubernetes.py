"""The Kubernetes executor against a stand-in API server; what it makes is valid by Kubernetes' strict schemas.

Tests of ``cluster`` run against a real API server too, where it is installed.
"""

import pytest

from live.kube_node import expanded
from live.kube_real import RealCluster
from live.kube_server import NOW, KubeServer, posix
from live.kube_site import MISSING
from noonward.live.executors import kubernetes
from noonward.live.executors.kubernetes import KubernetesExecutor
from noonward.live.executors.manifests import MANAGED, QUEUE
from noonward.live.executors.protocol import ClusterError, Order, RefusedError
from noonward.live.executors.web import ClusterWeb
from noonward.live.requests import JobRequest
from noonward.live.terms import Terms


@pytest.fixture
def server():
    made = KubeServer()
    yield made
    made.close()


REAL = [
    pytest.mark.skipif(bool(MISSING), reason=f"no Kubernetes API server: {', '.join(MISSING)} missing"),
    pytest.mark.xdist_group("kubernetes"),
]


@pytest.fixture(params=["simulated", pytest.param("real", marks=REAL)])
def cluster(request):
    if request.param == "simulated":
        yield request.getfixturevalue("server")
        return
    made = RealCluster(request.getfixturevalue("kube_site"))
    yield made
    made.close()


@pytest.fixture
def executor(request, tmp_path):
    webs = []

    def make(**given):
        names = request.fixturenames
        of = request.getfixturevalue("cluster" if "cluster" in names else "server")
        if isinstance(of, KubeServer):
            (tmp_path / "token").write_text("right\n")
            token_file = tmp_path / "token"
        else:
            token_file = of.token_file
        web = ClusterWeb("the cluster", of.url, token_file=token_file, authorities=of.authorities)
        webs.append(web)
        return KubernetesExecutor(
            lambda posix_s: posix_s - posix(NOW), web, namespace=of.namespace, image="python:3", gpus_per_node=4,
            **given,
        )  # fmt: skip

    yield make
    for web in webs:
        web.close()


def order(token="nw-t-1-0", gpus=2, handle=None, **more):
    about = {"name": "Ä b", "command": "exit 0"} | more
    return Order(token=token, job=1, gpus=gpus, run_s=9.0, start_s=0.0, handle=handle, **about)


def submitted(executor, **given):
    return order(**given, handle=executor.submit_held(order(**given)))


def phase(executor, one):
    found = executor.statuses([one])
    return found[0].phase if found else None


def test_a_job_is_suspended_until_its_release_and_its_name_is_the_token(executor, cluster):
    kube = executor()
    one = submitted(kube)
    made = cluster.job(one.token)
    assert made["spec"]["suspend"] is True
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert phase(kube, one) == "held"
    assert kube.find(one) == one.handle == made["metadata"]["uid"]
    assert kube.submit_held(order()) == one.handle  # it exists: the same one
    assert kube.find(order("nw-t-2-0")) is None
    assert [stray.handle for stray in kube.strays()] == [one.handle]
    kube.release(one)
    kube.release(one)
    assert cluster.has_started() == [one.token]
    assert phase(kube, one) == "queued"
    cluster.run(one.token)
    assert phase(kube, one) == "running"
    kube.release(one)
    cluster.end(one.token)
    done = kube.statuses([one])[0]
    assert (done.phase, done.exit_code) == ("done", 0)
    assert done.began_s <= done.ended_s
    assert kube.strays() == []


def test_a_job_began_when_its_pods_did_not_when_it_was_released(executor, server):
    kube = executor()
    one = submitted(kube)
    kube.release(one)
    server.run(one.token)
    calls = len(server.calls)
    assert kube.statuses([one])[0].began_s == 0.0
    assert kube.statuses([one])[0].began_s == 0.0
    assert sum(path.endswith("pods") for _, path in server.calls[calls:]) == 1  # they are asked for once
    server.end(one.token)
    done = kube.statuses([one])[0]
    assert (done.began_s, done.ended_s) == (0.0, 600.0)


def test_a_cluster_that_does_not_hold_jobs_is_given_none(executor, server):
    server.holds = False
    kube = executor()
    for _ in range(2):
        with pytest.raises(ClusterError, match="holds no jobs back") as told:
            kube.submit_held(order())
        assert not isinstance(told.value, RefusedError)
    assert server.objects == {}


def test_a_command_and_its_variables_arrive_as_they_are(executor, cluster):
    kube, text = executor(), "echo $$ $HOME $(HOME) ${A} '$(A)' $$$(A)é$é $"
    one = order(command=text, terms=Terms(environment={"A": "$$(NOONWARD_JOB)$"}))
    kube.submit_held(one)
    container = cluster.job(one.token)["spec"]["template"]["spec"]["containers"][0]
    known = {"A": "a", "HOME": "h", "NOONWARD_JOB": "1"}
    assert expanded(container["command"][2], known) == text
    assert expanded(container["env"][0]["value"], known) == "$$(NOONWARD_JOB)$"


def test_a_time_limit_that_no_controller_can_count_is_none(executor, cluster):
    kube = executor()
    long, longer = order(terms=Terms(time_limit_s=9.2e9)), order("nw-t-2-0", terms=Terms(time_limit_s=1e10))
    for one in (long, longer):
        kube.submit_held(one)
    assert cluster.job(long.token)["spec"]["activeDeadlineSeconds"] == 9_200_000_000
    assert "activeDeadlineSeconds" not in cluster.job(longer.token)["spec"]


def test_with_kueue_a_release_gives_the_job_to_its_queue(executor, cluster):
    kube = executor(queue="team")
    one = submitted(kube)
    assert QUEUE not in cluster.job(one.token)["metadata"]["labels"]
    assert phase(kube, one) == "held"
    kube.release(one)
    made = cluster.job(one.token)
    assert (made["metadata"]["labels"][QUEUE], made["spec"]["suspend"]) == ("team", True)
    assert phase(kube, one) == "queued"
    assert kube.strays() == []
    cluster.admit(one.token)
    cluster.run(one.token)
    assert phase(kube, one) == "running"


def test_a_gang_of_several_nodes_is_a_jobset(executor, cluster):
    kube = executor()
    one = submitted(kube, gpus=10)
    assert kube.submit_held(order(gpus=10)) == one.handle
    made = cluster.job(one.token, "jobsets")
    workers = made["spec"]["replicatedJobs"][0]
    assert (made["spec"]["suspend"], workers["template"]["spec"]["parallelism"]) == (True, 3)
    limits = workers["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "4"}
    kube.release(one)
    assert phase(kube, one) == "queued"
    cluster.set_status(one.token, {"replicatedJobsStatus": [{"name": "workers", "ready": 1}]}, "jobsets")
    assert phase(kube, one) == "running"
    cluster.end(one.token, "Completed", "AllJobsCompleted", "jobsets")
    assert phase(kube, one) == "done"


def test_a_cluster_without_jobsets_runs_jobs(executor, server):
    server.has_jobsets = False
    kube = executor()
    assert phase(kube, submitted(kube)) == "held"
    with pytest.raises(ClusterError, match="status 404"):
        kube.submit_held(order("nw-t-9-0", gpus=5))


def test_failures_and_cancellations_are_two_things(executor, cluster):
    kube = executor()
    bad, gone = (submitted(kube, token=f"nw-t-{n}-0", command="exit 3") for n in range(2))
    kube.release(bad)
    cluster.run(bad.token)
    cluster.fail(bad.token, 3)
    kube.cancel(gone)
    kube.cancel(gone)
    assert [phase(kube, one) for one in (bad, gone)] == ["failed", "cancelled"]
    assert kube.statuses([bad])[0].exit_code == 3
    assert "BackoffLimitExceeded" in kube.statuses([bad])[0].reason
    assert cluster.job(gone.token) is None


def test_a_lost_node_is_no_failure_of_the_job(executor, server):
    kube = executor()
    lost = submitted(kube)
    server.end(lost.token, "Failed", "PodFailurePolicy")
    assert phase(kube, lost) == "node-failed"


def test_lists_of_several_pages_are_read_whole(executor, cluster, monkeypatch):
    monkeypatch.setattr(kubernetes, "_PAGE", "2")
    kube = executor()
    orders = [submitted(kube, token=f"nw-t-{n}-0") for n in range(7)]
    assert [status.phase for status in kube.statuses(orders)] == ["held"] * 7
    assert len(kube.strays()) == 7


def test_an_object_of_the_same_name_and_another_uid_is_another_job(executor, cluster):
    kube = executor()
    one = submitted(kube)
    other = order(handle="uid-99")
    assert kube.statuses([other]) == []
    kube.release(other)
    kube.cancel(other)
    assert cluster.job(one.token)["spec"]["suspend"] is True


def test_gpus_of_others_and_of_nodes_that_are_not_ready_are_not_usable(executor, cluster):
    kube = executor()
    cluster.add_node("a", 4)
    cluster.add_node("b", 4)
    cluster.add_node("c", 4, ready=False)
    cluster.add_node("d", 4, unschedulable=True)
    cluster.add_pod("theirs", "a", 2)
    cluster.add_pod("fetches-its-image", "a", 1, status={"phase": "Pending"})
    cluster.add_pod("over", "a", 1, status={"phase": "Succeeded"})
    cluster.add_pod("ours", "b", 2, MANAGED.items())
    assert kube.usable_gpus(2) == 5


def test_how_many_gpus_are_usable_is_not_known_where_nodes_may_not_be_listed(executor, server):
    kube = executor()
    server.forbidden = True
    assert kube.usable_gpus(2) is None


def test_the_end_of_the_newest_pods_log_is_what_a_job_has_printed(executor, server, monkeypatch):
    kube, label = executor(), {"job-name": order().token}
    assert kube.printed(order(), 100) is None
    server.add_pod("second", "a", 1, label, creationTimestamp="2026-03-01T00:20:00Z")
    server.add_pod("first", "a", 1, label, creationTimestamp="2026-03-01T00:10:00Z")
    server.add_pod("other", "a", 1, {"job-name": "x"}, creationTimestamp="2026-03-01T00:30:00Z")
    assert kube.printed(order(), 100) is None
    server.logs["second"] = b"one\ntwo\nthree\n"
    assert kube.printed(order(), 100) == b"one\ntwo\nthree\n"
    assert kube.printed(order(), 8) == b"o\nthree\n"
    monkeypatch.setattr(kubernetes, "_LOG_BYTES", 8)
    assert kube.printed(order(), 100) == b"three\n"
    server.forbidden = True
    assert kube.printed(order(), 100) is None


def test_a_gang_of_several_nodes_prints_on_its_first(executor, server):
    for index in ("1", "0"):
        server.add_pod(
            f"pod-{index}", "a", 4, {"jobset.sigs.k8s.io/jobset-name": order().token},
            annotations={"batch.kubernetes.io/job-completion-index": index},
        )  # fmt: skip
        server.logs[f"pod-{index}"] = index.encode()
    assert executor().printed(order(gpus=8), 100) == b"0"


def test_what_the_cluster_answers_is_said(executor, server, tmp_path):
    kube = executor()
    server.down = True
    with pytest.raises(ClusterError, match="etcd is away"):
        kube.submit_held(order())
    server.down = False
    (tmp_path / "token").write_text("wrong")
    with pytest.raises(ClusterError, match="Unauthorized"):
        kube.statuses([order()])
    server.close()
    with pytest.raises(ClusterError, match="did not answer"):
        kube.strays()


@pytest.mark.parametrize("crash", range(1, 6))
def test_a_service_that_dies_at_a_call_makes_one_object_and_starts_it_once(service, executor, cluster, crash):
    live = service("local-fcfs")
    (job,) = live.submit(JobRequest(name="a", work=600.0, origin="north", command="true"))
    live.set_time(60.0)
    live.controller.decide()

    def plug():
        live.controller.agents[0].executor = executor()
        call, calls = live.controller.agents[0].executor._web.call, []

        def counted(*given, **more):
            found = call(*given, **more)
            calls.append(given)
            if len(calls) == crash:
                raise KeyboardInterrupt
            return found

        return counted

    live.controller.agents[0].executor = executor()
    live.controller.agents[0].executor._web.call = plug()
    for _ in range(4):
        try:
            live.controller.deliver(0)
        except KeyboardInterrupt:
            live.restart()
            live.controller.agents[0].executor = executor()
    token = live.store.read("SELECT token FROM jobs WHERE id = ?", job)[0]["token"]
    assert cluster.has_started() == [token]
    assert cluster.names() == [token]


def test_a_running_job_is_suspended_once_its_pods_are_gone_and_runs_again(executor, cluster):
    kube = executor()
    one = submitted(kube, command="sleep 60")
    kube.release(one)
    cluster.run(one.token)
    for _ in range(2):
        kube.stop(one)
    assert (cluster.job(one.token)["spec"]["suspend"], phase(kube, one)) == (True, "running")
    cluster.ending(one.token)
    assert phase(kube, one) == "running"
    cluster.stopped(one.token)
    assert phase(kube, one) == "held"
    for _ in range(2):
        assert kube.resume(one)
    assert (cluster.job(one.token)["spec"]["suspend"], phase(kube, one)) == (False, "queued")
    assert not kube.resume(order("nw-t-9-0", handle="uid-9"))


@pytest.mark.parametrize("status", [{"terminating": 1}, {}])
def test_pods_that_are_ending_are_counted_by_the_job_or_by_themselves(executor, server, status):
    kube = executor()
    one = submitted(kube)
    kube.release(one)
    server.run(one.token)
    kube.stop(one)
    server.set_status(one.token, status)  # before Kubernetes 1.29 a Job does not count them
    assert phase(kube, one) == "running"


def test_with_kueue_its_workload_is_made_inactive(executor, cluster):
    kube = executor(queue="ai")
    one = submitted(kube, command="sleep 60")
    kube.release(one)
    cluster.own(one.token)
    cluster.admit(one.token)
    cluster.run(one.token)
    kube.stop(one)
    assert (cluster.job(f"job-{one.token}", "workloads")["spec"]["active"], phase(kube, one)) == (False, "running")
    cluster.suspend(one.token)
    cluster.stopped(one.token)
    assert phase(kube, one) == "held"
    assert kube.resume(one)
    assert (cluster.job(f"job-{one.token}", "workloads")["spec"]["active"], phase(kube, one)) == (True, "queued")
