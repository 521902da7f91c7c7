"""What a job asks of its cluster: passed on by every executor that takes it, refused where none does."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from live.waiting import wait_for
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError
from noonward.live.config import checked_config
from noonward.live.executors.kubernetes import KubernetesExecutor
from noonward.live.executors.local import LocalExecutor
from noonward.live.executors.make import make_executor
from noonward.live.executors.manifests import manifest
from noonward.live.executors.protocol import ClusterError, Order, RefusedError
from noonward.live.executors.ray_jobs import RayExecutor
from noonward.live.executors.script import batch_script
from noonward.live.executors.slurm import SlurmExecutor, phase_of, waiting_reason
from noonward.live.executors.slurmrestd import SlurmRestExecutor
from noonward.live.requests import MOST_JOBS, JobRequest, RequestChecker, expanded
from noonward.live.terms import EVERY, Terms

ALL = Terms(
    time_limit_s=90.0,
    environment={"MODEL": "it's $HOME; new\nline", "PATH": "/opt/bin"},
    workdir="/data/run 1",
    output="/data/%x.log",
    image="/images/torch.sif",
    partition="long",
    qos="high",
    account="ai-1",
    exclusive=True,
)


def order(terms=ALL, command="true", gpus=2):
    return Order(
        token="nw-t-1-0", job=7, name="a", command=command, gpus=gpus, run_s=50.0, start_s=0.0, handle="1", terms=terms
    )


class Web:
    """An HTTP interface that keeps what it is sent."""

    title = "the cluster"

    def __init__(self):
        self.sent = []

    def call(self, method, path, content=None, **_):
        self.sent.append(content)
        if method == "GET":
            return 404, None
        return 200, {"job_id": 7, "metadata": {"uid": "u"}, "spec": (content or {}).get("spec")}


@pytest.fixture
def slurm(tmp_path):
    """Makes an executor whose sbatch writes down how it is called."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(
        f"#!/bin/sh\ncat > {tmp_path}/script; env > {tmp_path}/environment\n"
        f'for word in "$@"; do printf "%s\\n" "$word"; done > {tmp_path}/words\ncat {tmp_path}/answer\n'
    )
    sbatch.chmod(0o755)
    (tmp_path / "answer").write_text("7\n")

    def make(**given):
        return SlurmExecutor(lambda posix_s: posix_s, commands=tmp_path, partition="gpu", **given)

    return make


def test_slurm_is_told_every_term_and_those_of_the_job_come_last(slurm, tmp_path):
    executor = slurm(container=("apptainer", "exec"), time_limit_factor=100.0, options=("--qos=low", "--mem=0"))
    assert executor.submit_held(order()) == "7"
    words = (tmp_path / "words").read_text().splitlines()
    assert {"--partition=long", "--chdir=/data/run 1", "--output=/data/%x.log", "--account=ai-1", "--exclusive"} <= set(
        words
    )
    assert words.index("--qos=low") < words.index("--qos=high")
    assert "--time=2" in words  # whole minutes, not below the limit; not the factor's 84
    executor.submit_held(order(Terms()))
    assert {"--partition=gpu", "--time=84"} <= set((tmp_path / "words").read_text().splitlines())


def test_variables_reach_the_job_and_not_sbatch_on_the_services_machine(slurm, tmp_path):
    slurm().submit_held(order(Terms(environment={"LD_PRELOAD": "/evil.so", "PATH": "/evil", "TEXT": "it's\na $x"})))
    given = (tmp_path / "environment").read_text()
    assert "evil" not in given
    assert "NOONWARD_JOB" not in given
    script = (tmp_path / "script").read_text()
    assert f"export TEXT={shlex.quote(chr(39).join(['it', 's']) + chr(10) + 'a $x')}" in script


def test_sbatch_is_found_by_the_path_of_the_service(slurm, tmp_path):
    slurm().submit_held(order(Terms(environment={"PATH": "/opt/bin"})))
    given = (tmp_path / "environment").read_text().splitlines()
    assert f"PATH={os.environ['PATH']}" in given


def test_options_at_the_head_of_a_command_stay_there_and_dangerous_ones_are_refused():
    lines = batch_script(order(Terms(), "#!/bin/bash\n\n#SBATCH --mem=8G\n# more\necho a\n#SBATCH --array=1-9")).split(
        "\n"
    )
    assert lines[:5] == ["#!/bin/sh", "#!/bin/bash", "", "#SBATCH --mem=8G", "# more"]
    assert lines.index("export NOONWARD_JOB=7") < lines.index("echo a")
    for option in ("--array=1-9", "-a 1-9", "-a1-9", "--wait", "-W", "--test-only", "-M south", "hetjob"):
        with pytest.raises(RefusedError, match="not possible here"):
            batch_script(order(Terms(), f"#SBATCH --mem=8G\n#SBATCH {option}\ntrue"))


def test_what_sbatch_prints_instead_of_a_number_is_no_handle(slurm, tmp_path):
    (tmp_path / "answer").write_text("slurm-wlm 22.05.8\n")
    with pytest.raises(RefusedError, match=r"gave it no number, but printed 'slurm-wlm 22\.05\.8'"):
        slurm().submit_held(order(Terms()))


def test_an_image_is_run_by_the_sites_command_for_containers(tmp_path):
    fake = tmp_path / "apptainer"
    fake.write_text('#!/bin/sh\necho "image $3 on $NOONWARD_GPUS"; shift 3; exec "$@"\n')
    fake.chmod(0o755)
    script = batch_script(
        order(Terms(image="/images/a b.sif"), "echo 'inside' \"$0\"\nexit 3"), container=(str(fake), "exec", "--nv")
    )
    done = subprocess.run(["/bin/sh"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "image /images/a b.sif on 2\ninside /bin/sh\n")


def test_slurmrestd_is_told_every_term():
    web = Web()
    executor = SlurmRestExecutor(lambda posix_s: posix_s, web, container=("apptainer", "exec"), partition="gpu")
    executor.submit_held(order())
    job = web.sent[0]["job"]
    told = {name: job[name] for name in ("time_limit", "partition", "qos", "account", "exclusive")}
    assert told == {"time_limit": 2, "partition": "long", "qos": "high", "account": "ai-1", "exclusive": "exclusive"}
    assert (job["current_working_directory"], job["standard_output"]) == ("/data/run 1", "/data/%x.log")
    assert job["environment"]["MODEL"] == ALL.environment["MODEL"]
    assert "export" not in web.sent[0]["script"]
    assert "exec apptainer exec /images/torch.sif" in web.sent[0]["script"]


def test_kubernetes_and_ray_are_told_what_they_take():
    given = {"image": "python:3", "gpu_resource": "g", "gpus_per_node": 4, "node_selector": {}, "requests": {}}
    for gpus in (2, 8):
        made = manifest(order(gpus=gpus), **given)
        job = made["spec"] if gpus == 2 else made["spec"]["replicatedJobs"][0]["template"]["spec"]
        assert job["activeDeadlineSeconds"] == 90
        container = job["template"]["spec"]["containers"][0]
        assert (container["image"], container["workingDir"]) == ("/images/torch.sif", "/data/run 1")
        literal = ALL.environment["MODEL"].replace("$", "$$")  # of two, Kubernetes leaves one out
        assert {"name": "MODEL", "value": literal} in container["env"]
    assert "activeDeadlineSeconds" not in manifest(order(Terms()), **given)["spec"]
    for gpus in (2, 8):
        assert manifest(order(gpus=gpus), **given, keep_ended_s=6e5)["spec"]["ttlSecondsAfterFinished"] == 600_000
    web = Web()
    RayExecutor(lambda posix_s: posix_s, web).release(order())
    assert web.sent[-1]["runtime_env"]["env_vars"]["MODEL"] == ALL.environment["MODEL"]
    assert web.sent[-1]["entrypoint"] == "cd '/data/run 1' && {\ntrue\n}"


def test_the_objects_of_ended_jobs_are_kept_for_as_long_as_the_configuration_says():
    site = {"executor": "kubernetes", "url": "http://k", "image": "python:3"}
    sites = {"north": site, "south": site | {"keep_ended_days": 2}}
    config, _ = checked_config({"scenario": "tiny", "policy": "local-fcfs", "sites": sites}, "live.yaml", Path())
    for name, days in (("north", 7), ("south", 2)):
        executor = make_executor(config, name, SimpleNamespace(second_of=float), shadow=False)
        web = executor._web = Web()
        executor.submit_held(order())
        assert web.sent[-1]["spec"]["ttlSecondsAfterFinished"] == days * 86_400


def test_every_executor_gives_the_same_variables(slurm, tmp_path):
    """By what Slurm's script exports, slurmrestd, Kubernetes and Ray are sent, and a local process finds."""
    one = order(Terms(environment={"MODEL": "a"}, task=3, tasks=9), "env | grep -E '^(NOONWARD_|MODEL)'")
    wanted = {
        "NOONWARD_JOB": "7", "NOONWARD_GPUS": "2", "NOONWARD_TASK": "3", "NOONWARD_TASKS": "9", "MODEL": "a",
    }  # fmt: skip
    slurm().submit_held(one)
    exported = [line for line in (tmp_path / "script").read_text().splitlines() if line.startswith("export ")]
    assert dict(line.removeprefix("export ").split("=") for line in exported) == wanted
    web = Web()
    SlurmRestExecutor(lambda posix_s: posix_s, web).submit_held(one)
    assert web.sent[-1]["job"]["environment"].items() >= wanted.items()
    KubernetesExecutor(lambda posix_s: posix_s, web, namespace="ai", image="python:3").submit_held(one)
    env = web.sent[-1]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {each["name"]: each["value"] for each in env} == wanted
    RayExecutor(lambda posix_s: posix_s, web).release(one)
    assert web.sent[-1]["runtime_env"]["env_vars"] == wanted
    assert dict(line.split("=") for line in run_locally(tmp_path, one).splitlines()) == wanted


def run_locally(tmp_path, one):
    executor = LocalExecutor(tmp_path / "local", lambda posix_s: posix_s)
    executor.submit_held(one)
    executor.release(one)
    wait_for(lambda: executor.statuses([one])[0].phase in ("done", "failed"), "the end")
    file = tmp_path / "local" / one.token / "output"
    return file.read_text() if file.exists() else ""


def test_a_local_job_runs_in_its_folder_and_prints_into_its_file(tmp_path):
    (tmp_path / "run").mkdir()
    one = order(Terms(workdir=str(tmp_path / "run"), output="log"), "pwd")
    run_locally(tmp_path, one)
    assert (tmp_path / "run" / "log").read_text() == f"{tmp_path}/run\n"
    own_path = order(Terms(environment={"PATH": "/opt/bin"}), "echo $PATH")
    shutil.rmtree(tmp_path / "local")
    assert run_locally(tmp_path, own_path) == "/opt/bin\n"
    gone = order(Terms(workdir=str(tmp_path / "gone")), "pwd")
    executor = LocalExecutor(tmp_path / "other", lambda posix_s: posix_s)
    executor.submit_held(gone)
    executor.release(gone)
    wait_for(lambda: executor.statuses([gone])[0].phase == "failed", "the failure")


def test_a_job_that_can_never_start_fails_with_slurms_reason_and_another_shows_what_it_waits_for():
    assert phase_of("PENDING", "BadConstraints") == phase_of("PENDING", "PartitionTimeLimit") == "node-failed"
    assert phase_of("PENDING", "QOSMaxGRESPerUser") == "queued"
    assert waiting_reason("queued", "PENDING", "QOSMaxGRESPerUser") == "QOSMaxGRESPerUser"
    assert waiting_reason("queued", "PENDING", "Resources") == ""


# What may be asked.


@pytest.fixture
def fleet():
    return load_scenario("tiny").fleet


def request(**given):
    return JobRequest(**{"name": "a", "work": 600.0, "origin": "north", **given})


def test_a_site_that_cannot_give_what_a_job_asks_does_not_run_it(fleet):
    checker = RequestChecker(fleet, 8, [EVERY, EVERY - {"image"}])
    assert checker.row(request(qos="high")).vetoed == "[]"
    assert checker.row(request(image="a.sif")).vetoed == '["south"]'
    with pytest.raises(DataError, match="states image, which no cluster that it may run at takes"):
        checker.row(request(image="a.sif", site="south"))
    with pytest.raises(DataError, match="states image"):
        checker.row(request(image="a.sif", not_sites=("north",)))


def test_a_site_that_a_job_does_not_fit_into_is_no_site_that_may_take_it():
    """Neither for what it asks of its cluster, nor for the longest run that its deadline leaves room for."""
    fleet = load_scenario("tiny", ["fleet.sites.1.gpus=4"]).fleet
    checker = RequestChecker(fleet, 8, [EVERY - {"image"}, EVERY])
    assert checker.row(request(image="a.sif", gpus_min=4)).vetoed == '["north"]'
    with pytest.raises(DataError, match="states image, which no cluster that it may run at takes"):
        checker.row(request(image="a.sif", gpus_min=8))
    checker._seconds_SCGF[1] *= 10.0
    assert checker.row(request(deadline_s=700.0, gpus_min=8)).max_delay_s == pytest.approx(100.0)
    with pytest.raises(DataError, match="may run for 6000 s"):
        checker.row(request(deadline_s=700.0, gpus_min=4))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"environment": {"1A": "x"}}, "begins with no digit"),
        ({"environment": {"NOONWARD_JOB": "1"}}, "the service sets"),
        ({"environment": {"A": "\x00"}}, "NUL"),
        ({"workdir": "data"}, "not absolute"),
        ({"output": "a\nb"}, "not one line"),
        ({"image": "--bind=/"}, "begins with -"),
        ({"task": 3}, "needs tasks"),
        ({"task": 3, "tasks": 3}, "below that number"),
        ({"deadline_s": 60.0}, "deadline_s 60, and may run for"),
    ],
)
def test_terms_that_cannot_be_passed_on_are_refused(fleet, given, words):
    with pytest.raises(DataError, match=words):
        RequestChecker(fleet, 8).row(request(**given))


@pytest.mark.parametrize("given", [{"partition": "a b"}, {"qos": "-x;rm"}, {"time_limit_s": 0}, {"tasks": 10_001}])
def test_words_for_the_cluster_are_words(given):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "a", "work": 1.0, **given}, JobRequest)


def test_a_deadline_leaves_the_longest_run_that_may_be_chosen(fleet):
    checker = RequestChecker(fleet, 8)
    tables = fleet.tables(8)
    longest_s = float(600.0 * tables.seconds_per_unit_SCGF[:, 0, 2:5].max())
    row = checker.row(request(deadline_s=longest_s + 100.0, gpus_min=2, gpus_max=4))
    assert row.max_delay_s == pytest.approx(100.0)
    both = checker.row(request(deadline_s=longest_s + 100.0, max_delay_s=30.0, gpus_min=2, gpus_max=4))
    assert both.max_delay_s == 30.0


def test_an_array_is_a_job_for_every_task(service):
    live = service("local-fcfs")
    rows = [live.checker.row(one) for one in expanded([request(tasks=3, key="k", command="run")])]
    assert [(row.name, row.key) for row in rows] == [("a[0]", "k/0"), ("a[1]", "k/1"), ("a[2]", "k/2")]
    assert [json.loads(row.request)["task"] for row in rows] == [0, 1, 2]
    assert expanded([request(tasks=3, task=1)])[0].name == "a"
    with pytest.raises(DataError, match="10001 jobs and tasks"):
        expanded([request(tasks=MOST_JOBS), request()])


def test_what_a_job_asked_reaches_its_cluster_through_the_store(service):
    live = service("local-fcfs")
    seen = []

    class ToldError(ClusterError):
        pass

    def submit_held(one):
        seen.append(one)
        raise ToldError("no")

    live.controller.agents[0].executor.submit_held = submit_held
    live.controller.agents[0].executor.find = lambda one: None
    live.submit(request(qos="high", time_limit_s=90.0, tasks=4, task=2, environment={"A": "b"}))
    live.set_time(60.0)
    live.controller.decide()
    with pytest.raises(ToldError):
        live.controller.deliver(0)
    assert seen[0].terms == Terms(qos="high", time_limit_s=90.0, tasks=4, task=2, environment={"A": "b"})
