"""The Kubernetes executor against a stand-in API server; what it makes is valid by Kubernetes' strict schemas."""

import pytest

from live.kube_server import NOW, KubeServer, posix
from noonward.live.executors import kubernetes
from noonward.live.executors.kubernetes import KubernetesExecutor
from noonward.live.executors.manifests import MANAGED, QUEUE
from noonward.live.executors.protocol import ClusterError, Order
from noonward.live.executors.web import ClusterWeb
from noonward.live.requests import JobRequest


@pytest.fixture
def server():
    made = KubeServer()
    yield made
    made.close()


@pytest.fixture
def executor(server, tmp_path):
    webs = []

    def make(**given):
        (tmp_path / "token").write_text("right\n")
        web = ClusterWeb("the cluster", server.url, token_file=tmp_path / "token")
        webs.append(web)
        return KubernetesExecutor(
            lambda posix_s: posix_s - posix(NOW), web, namespace="ai", image="python:3", gpus_per_node=4, **given
        )

    yield make
    for web in webs:
        web.close()


def order(token="nw-t-1-0", gpus=2, handle=None):
    return Order(token=token, job=1, name="Ä b", command="exit 0", gpus=gpus, run_s=9.0, start_s=0.0, handle=handle)


def submitted(executor, **given):
    return order(**given, handle=executor.submit_held(order(**given)))


def phase(executor, one):
    found = executor.statuses([one])
    return found[0].phase if found else None


def test_a_job_is_suspended_until_its_release_and_its_name_is_the_token(executor, server):
    kube = executor()
    one = submitted(kube)
    made = server.objects["jobs", one.token]
    assert made["spec"]["suspend"] is True
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert phase(kube, one) == "held"
    assert kube.find(one) == one.handle == "uid-1"
    assert kube.submit_held(order()) == "uid-1"  # it exists: the same one
    assert kube.find(order("nw-t-2-0")) is None
    assert [stray.handle for stray in kube.strays()] == ["uid-1"]
    kube.release(one)
    kube.release(one)
    assert server.started == [one.token]
    assert phase(kube, one) == "queued"
    server.run(one.token)
    assert kube.statuses([one])[0].began_s == 0.0
    kube.release(one)
    server.end(one.token)
    done = kube.statuses([one])[0]
    assert (done.phase, done.began_s, done.ended_s, done.exit_code) == ("done", 0.0, 600.0, 0)
    assert kube.strays() == []


def test_with_kueue_a_release_gives_the_job_to_its_queue(executor, server):
    kube = executor(queue="team")
    one = submitted(kube)
    assert QUEUE not in server.objects["jobs", one.token]["metadata"]["labels"]
    assert phase(kube, one) == "held"
    kube.release(one)
    made = server.objects["jobs", one.token]
    assert (made["metadata"]["labels"][QUEUE], made["spec"]["suspend"]) == ("team", True)
    assert phase(kube, one) == "queued"
    assert kube.strays() == []
    server.admit(one.token)
    server.run(one.token)
    assert phase(kube, one) == "running"


def test_a_gang_of_several_nodes_is_a_jobset(executor, server):
    kube = executor()
    one = submitted(kube, gpus=10)
    made = server.objects["jobsets", one.token]
    workers = made["spec"]["replicatedJobs"][0]
    assert (made["spec"]["suspend"], workers["template"]["spec"]["parallelism"]) == (True, 3)
    limits = workers["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "4"}
    kube.release(one)
    assert phase(kube, one) == "queued"
    made["status"] = {"replicatedJobsStatus": [{"name": "workers", "ready": 1}]}
    assert phase(kube, one) == "running"
    server.end(one.token, "Completed", "AllJobsCompleted", "jobsets")
    assert phase(kube, one) == "done"


def test_a_cluster_without_jobsets_runs_jobs(executor, server):
    server.has_jobsets = False
    kube = executor()
    assert phase(kube, submitted(kube)) == "held"
    with pytest.raises(ClusterError, match="status 404"):
        kube.submit_held(order("nw-t-9-0", gpus=5))


def test_failures_lost_nodes_and_cancellations_are_three_things(executor, server):
    kube = executor()
    bad, lost, gone = (submitted(kube, token=f"nw-t-{n}-0") for n in range(3))
    server.end(bad.token, "Failed", "BackoffLimitExceeded")
    server.end(lost.token, "Failed", "PodFailurePolicy")
    kube.cancel(gone)
    kube.cancel(gone)
    assert [phase(kube, one) for one in (bad, lost, gone)] == ["failed", "node-failed", "cancelled"]
    assert ("jobs", gone.token) not in server.objects


def test_lists_of_several_pages_are_read_whole(executor, server):
    kube = executor()
    orders = [submitted(kube, token=f"nw-t-{n}-0") for n in range(7)]
    assert [status.phase for status in kube.statuses(orders)] == ["held"] * 7
    assert len(kube.strays()) == 7


def test_an_object_of_the_same_name_and_another_uid_is_another_job(executor, server):
    kube = executor()
    one = submitted(kube)
    other = order(handle="uid-99")
    assert kube.statuses([other]) == []
    kube.release(other)
    kube.cancel(other)
    assert server.objects["jobs", one.token]["spec"]["suspend"] is True


def test_gpus_of_others_and_of_nodes_that_are_not_ready_are_not_usable(executor, server):
    kube = executor()
    server.add_node("a", 4)
    server.add_node("b", 4)
    server.add_node("c", 4, ready=False)
    server.add_node("d", 4, unschedulable=True)
    server.add_pod("theirs", "a", 3)
    server.add_pod("ours", "b", 2, MANAGED.items())
    assert kube.usable_gpus(2) == 5
    server.forbidden = True
    assert kube.usable_gpus(2) is None


def test_the_end_of_the_newest_pods_log_is_what_a_job_has_printed(executor, server, monkeypatch):
    kube, label = executor(), {"batch.kubernetes.io/job-name": order().token}
    assert kube.printed(order(), 100) is None
    server.add_pod("second", "a", 1, label, creationTimestamp="2026-03-01T00:20:00Z")
    server.add_pod("first", "a", 1, label, creationTimestamp="2026-03-01T00:10:00Z")
    server.add_pod("other", "a", 1, {"batch.kubernetes.io/job-name": "x"}, creationTimestamp="2026-03-01T00:30:00Z")
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


@pytest.mark.parametrize("crash", range(1, 5))
def test_a_service_that_dies_at_a_call_makes_one_object_and_starts_it_once(service, executor, server, crash):
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
    assert server.started == [token]
    assert [name for _, name in server.objects] == [token]


def test_a_running_job_is_suspended_once_its_pods_are_gone_and_runs_again(executor, server):
    kube = executor()
    one = submitted(kube)
    kube.release(one)
    server.run(one.token)
    for _ in range(2):
        kube.stop(one)
    made = server.objects["jobs", one.token]
    assert (made["spec"]["suspend"], phase(kube, one)) == (True, "running")
    made["status"] = {"terminating": 1}
    assert phase(kube, one) == "running"
    made["status"] = {}
    assert phase(kube, one) == "held"
    for _ in range(2):
        assert kube.resume(one)
    assert (made["spec"]["suspend"], phase(kube, one)) == (False, "queued")
    assert not kube.resume(order("nw-t-9-0", handle="uid-9"))


def test_with_kueue_its_workload_is_made_inactive(executor, server):
    kube = executor(queue="ai")
    one = submitted(kube)
    kube.release(one)
    server.own(one.token)
    server.admit(one.token)
    server.run(one.token)
    kube.stop(one)
    workload, made = server.objects["workloads", f"job-{one.token}"], server.objects["jobs", one.token]
    assert (workload["spec"]["active"], phase(kube, one)) == (False, "running")
    made["spec"]["suspend"], made["status"] = True, {}  # as Kueue does
    assert phase(kube, one) == "held"
    assert kube.resume(one)
    assert (workload["spec"]["active"], phase(kube, one)) == (True, "queued")
