"""Job logs as JSON of Slurm and Kubernetes, slices of GPUs, and public traces in their own layouts."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from noonward.data.account import Account
from noonward.data.clock import Clock
from noonward.data.jobs.formats import import_jobs
from noonward.data.jobs.logs.log import LogOptions
from noonward.errors import DataError

Read = Callable[..., tuple[pl.DataFrame, Account]]
DETAILS = ("job_id", "user", "team", "name", "partition", "limit_s", "state")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a file and reads it as a job log; options by name."""

    def read(content: Any, name: str = "log.json", **options: Any) -> tuple[pl.DataFrame, Account]:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return import_jobs(path, LogOptions(**options))

    return read


def why(account: Account) -> dict[str, int]:
    """Returns what was said of how many rows."""
    return {entry.why: entry.count for entry in account.entries}


# ---------------------------------------------------------------- slices and shares of GPUs


@pytest.mark.parametrize(
    ("tres", "gpus", "kind"),
    [
        ("gres/gpu:a100_3g.20gb=2,gres/gpu=2", 1, "a100"),
        ("gres/gpu:a100_3g.20gb=3,gres/gpu=3", 2, "a100"),
        ("gres/gpu:1g.10gb=8", 2, None),
        ("gres/gpu:a30_2g.12gb=3", 2, "a30"),
        ("gres/gpu=3,gres/gpu:a100=2,gres/gpu:a100_1g.5gb=1", 3, "a100"),
        ("gres/gpu=8,gres/gpu:a100=4,gres/gpu:h100=4", 8, None),
    ],
)
def test_slices_count_by_their_sevenths_and_mixed_types_are_said(read: Read, tres: str, gpus: int, kind: str) -> None:
    head = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n"
    row = f"1|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T01:00:00|3600|{tres}\n"
    jobs, account = read(head + row, "log.txt", clock=Clock("UTC"))
    assert jobs["gpus"].to_list() == [gpus]
    assert (jobs["gpu_type"].to_list() if "gpu_type" in jobs.columns else [None]) == [kind]
    said = " ".join(why(account))
    assert ("slices of GPUs (MIG)" in said) == ("g." in tres)
    assert ("several types" in said) == ("h100" in tres)


def test_shares_of_a_gpu_alone_are_said_to_be_left_out(read: Read) -> None:
    head = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n"
    row = "{}|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T01:00:00|3600|{}\n"
    _, account = read(head + row.format(1, "gres/shard=4") + row.format(2, "gres/gpu=1"), "log.txt", clock=Clock("UTC"))
    assert why(account)["jobs with shares of a GPU alone (gres/shard, gres/mps) count as jobs without a GPU"] == 1
    assert why(account)["no GPU"] == 1


# ---------------------------------------------------------------- sacct --json


def wrapped(number: int | None) -> dict[str, Any]:
    return {"set": number is not None, "infinite": False, "number": number or 0}


def sacct(new: bool, **changes: Any) -> dict[str, Any]:
    """A job in an older or newer layout: 2022-01-01, submitted at 00:00, started at 00:01, ended at 01:01 UTC."""
    number = wrapped if new else (lambda value: 0 if value is None else value)
    times = {"submission": 1640995200, "start": 1640995260, "end": 1640998860, "elapsed": 3600, "limit": number(120)}
    tres = [{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu", "count": 4},
            {"type": "gres", "name": "gpu:a100", "count": 4}]  # fmt: skip
    return {
        "job_id": 7, "user": "ada", "account": "nlp", "partition": "gpu", "name": "train", "cluster": "bln",
        "array": {"job_id": 0, "task_id": number(None) if new else None}, "time": times,
        "state": {"current": ["TIMEOUT"] if new else "TIMEOUT"}, "tres": {"allocated": tres, "requested": tres},
    } | changes  # fmt: skip


@pytest.mark.parametrize("new", [True, False])
def test_json_of_sacct_is_read_in_both_layouts(read: Read, new: bool) -> None:
    waiting = sacct(new, job_id=8, time={"submission": 1640995200, "start": 0, "end": 0, "elapsed": 0})
    task = sacct(new, job_id=10, array={"job_id": 9, "task_id": wrapped(3) if new else 3})
    jobs, account = read({"meta": {}, "jobs": [sacct(new), waiting, task]})
    assert jobs.select(DETAILS).rows() == [
        ("7", "ada", "nlp", "train", "gpu", 7200.0, "timeout"),
        ("9_3", "ada", "nlp", "train", "gpu", 7200.0, "timeout"),
    ]
    names = ("submit_time", "start_time", "duration_s", "gpus", "gpu_type", "origin")
    assert jobs.select(names).row(0) == ("2022-01-01T00:00:00Z", "2022-01-01T00:01:00Z", 3600.0, 4, "a100", "bln")
    assert why(account)["never started"] == 1
    assert (account.rows_in, account.rows_out) == (3, 2)


def test_json_that_is_no_accounting_is_refused(read: Read) -> None:
    for content, says in (
        ({"jobs": [{"job_state": ["PENDING"], "tres": 1}]}, "JSON of squeue or scontrol"),
        ({"jobs": [], "tres": 1}, "holds no job"),
        ({"jobs": [{"job_id": 3, "tres": {}}]}, "job 3: .*sacct --json"),
    ):
        with pytest.raises(DataError, match=says):
            read(content)
    with pytest.raises(DataError, match="holds no job"):
        read([{"job_id": 3, "tres": {}}], format="slurm-json")


# ---------------------------------------------------------------- Kubernetes


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "ml", "creationTimestamp": "2022-10-01T00:00:00Z", **more}


def pod_spec(resource: str = "nvidia.com/gpu", count: int = 2) -> dict[str, Any]:
    return {"containers": [{"resources": {"limits": {resource: str(count)}}}]}


def test_pods_hold_their_gpus_from_start_to_the_end_of_their_last_container(read: Read) -> None:
    ended = {"state": {"terminated": {"finishedAt": "2022-10-01T01:00:00Z"}}}
    status = {"startTime": "2022-10-01T00:30:00Z", "containerStatuses": [ended]}
    items = [
        {"kind": "Pod", "metadata": meta("a"), "spec": pod_spec(), "status": status | {"phase": "Succeeded"}},
        {"kind": "Pod", "metadata": meta("b-x", ownerReferences=[{"name": "b"}]), "spec": pod_spec(),
         "status": status | {"phase": "Failed", "reason": "Evicted"}},
        {"kind": "Pod", "metadata": meta("c"), "spec": pod_spec(), "status": status | {"phase": "Running"}},
    ]  # fmt: skip
    jobs, _ = read({"apiVersion": "v1", "kind": "List", "items": items})
    assert jobs.select("job_id", "name", "gpus", "duration_s", "state").rows() == [
        ("ml/a", "a", 2, 1800.0, "done"), ("ml/b-x", "b", 2, 1800.0, "cancelled"),
    ]  # fmt: skip


def test_workloads_of_kueue_hold_their_gpus_from_admission_to_end(read: Read) -> None:
    conditions = [
        {"type": "Admitted", "status": "True", "lastTransitionTime": "2022-10-01T00:10:00Z"},
        {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": "2022-10-01T02:10:00Z"},
    ]
    spec = {
        "queueName": "night", "maximumExecutionTimeSeconds": 9000,
        "podSets": [{"count": 3, "template": {"spec": pod_spec()}}, {"template": {"spec": pod_spec(count=1)}}],
    }  # fmt: skip
    item = {"kind": "Workload", "metadata": meta("w"), "spec": spec, "status": {"conditions": conditions}}
    other = {"kind": "Pod", "metadata": meta("p"), "spec": pod_spec(), "status": {}}
    jobs, account = read({"apiVersion": "v1", "kind": "List", "items": [item, other]})
    names = ("job_id", "partition", "limit_s", "gpus", "start_time", "duration_s", "state")
    assert jobs.select(names).rows() == [("ml/w", "night", 9000.0, 7, "2022-10-01T00:10:00Z", 7200.0, "done")]
    assert why(account)["objects other than Workloads"] == 1


def test_slices_of_kubernetes_count_by_their_sevenths(read: Read) -> None:
    done = {"startTime": "2022-10-01T00:00:00Z", "completionTime": "2022-10-01T01:00:00Z"}
    spec = {"parallelism": 3, "template": {"spec": pod_spec("nvidia.com/mig-3g.20gb", 1)}}
    jobs, account = read({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta("a"), "spec": spec, "status": done})
    assert jobs["gpus"].to_list() == [2]  # 9/7 of a GPU
    assert "slices of GPUs (MIG)" in " ".join(why(account))


# ---------------------------------------------------------------- public traces


def test_openb_pods(read: Read) -> None:
    head = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\n"
    )
    rows = (
        "p1,1,1,2,1000,V100M16,LS,Succeeded,0,7200,3600\np2,1,1,1,300,A10|T4,BE,Failed,60,660,60\n"
        "p3,1,1,0,0,,BE,Running,9,,\n"
    )
    with pytest.raises(DataError, match=r"line 2: its time, 1970-01-01 00:00, lies before 2000; .* --first-day"):
        read(head + rows, "openb.csv")
    jobs, account = read(head + rows, "openb.csv", first_day=date(2022, 1, 5))
    assert jobs.select("job_id", "submit_time", "duration_s", "gpus", "gpu_type", "state").rows() == [
        ("p1", "2022-01-06T00:00:00Z", 3600.0, 2, "V100M16", "done"),
        ("p2", "2022-01-06T00:01:00Z", 600.0, 1, None, "failed"),
    ]
    assert why(account)["jobs asked for shares of GPUs: a job's sum is rounded up to whole GPUs"] == 1
    assert account.format == "Alibaba openb pods (2023)"


@pytest.mark.parametrize("header", [True, False])
def test_pai_tasks_with_and_without_a_header(read: Read, header: bool) -> None:
    head = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    rows = (
        "j1,worker,5,Terminated,604800,608400,600,30,50,T4\nj2,tf,1,Failed,604860.0,604920.0,600,30,100,MISC\n"
        "j3,ps,1,Running,9,,1,1,25,\n"
    )
    jobs, account = read((head if header else "") + rows, "pai.csv", first_day=date(2022, 1, 5))
    assert jobs.select("job_id", "name", "duration_s", "gpus", "gpu_type", "state").rows() == [
        ("j1/worker", "worker", 3600.0, 3, "T4", "done"), ("j2/tf", "tf", 60.0, 1, "MISC", "failed"),
    ]  # fmt: skip
    dropped = next(entry for entry in account.entries if entry.why == "not ended when the log was written")
    assert (dropped.count, dropped.line) == (1, 4 if header else 3)
    with pytest.raises(DataError, match=r"the job has a negative number of GPUs \(-1;"):
        read(
            head + rows.replace(",5,Term", ",1,Term").replace(",50,T4", ",-50,T4"),
            "pai.csv",
            first_day=date(2022, 1, 5),
        )


def test_philly_attempts_are_jobs_of_their_own(read: Read) -> None:
    gpus = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu3"]}]
    attempts = [
        {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 03:00:00", "detail": gpus},
        {"start_time": "2017-10-07 04:00:00", "end_time": "2017-10-07 04:30:00", "detail": gpus[:1]},
    ]
    job = {"status": "Pass", "vc": "v1", "jobid": "a1", "attempts": attempts, "user": "u1",
           "submitted_time": "2017-10-07 01:12:09"}  # fmt: skip
    never = {"status": "Killed", "vc": "v1", "jobid": "a2", "attempts": [], "user": "u1",
             "submitted_time": "2017-10-07 01:12:09"}  # fmt: skip
    jobs, account = read([job, never])
    assert jobs.select("job_id", "submit_time", "duration_s", "gpus", "user", "team", "state").rows() == [
        ("a1", "2017-10-07T08:12:09Z", 3600.0, 3, "u1", "v1", "failed"),
        ("a1#2", "2017-10-07T11:00:00Z", 1800.0, 2, "u1", "v1", "done"),
    ]
    assert why(account)["further attempts are jobs of their own, submitted when they began"] == 1


def test_helios_and_acme_are_tables_of_jobs_whose_run_times_are_end_less_start(read: Read) -> None:
    helios = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    row = "1,u1,v1,8,64,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 01:01:00,3600,60\n"
    jobs, _ = read(helios + row, "helios.csv", clock=Clock("Asia/Shanghai"))
    names = ("job_id", "user", "team", "gpus", "submit_time", "duration_s", "state")
    assert jobs.select(names).row(0) == ("1", "u1", "v1", 8, "2020-03-31T16:00:00Z", 3600.0, "done")
    assert "partition" not in jobs.columns  # 60 s of waiting are no queue
    told, _ = read(helios + row, "told.csv", clock=Clock("Asia/Shanghai"), columns={"partition": "queue"})
    assert told["partition"].to_list() == ["60"]
    acme = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
    row = (
        "k1,u2,1,8,9,SFT,FAILED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,2023-05-17 11:00:18+00:00,18,q,1\n"
    )
    assert read(acme + row, "kalos.csv")[0].select("duration_s", "state").row(0) == (8.0, "failed")


def test_rows_of_slurms_database_are_read_as_mit_supercloud_has_published_them(read: Read) -> None:
    head = "id_job,id_user,timelimit,time_submit,time_start,time_end,nodes_alloc,gres_used,partition,state,tres_alloc\n"
    rows = (
        '7,u1,1440,1609459200,1609459300,1609462900,1,gpu:volta:2,normal,3,"1=40,2=170000,4=1,5=40,1001=2,1002=2"\n'
        '8,u1,4294967295,1609459200,1609459300,1609459400,1,,normal,6,"1=40,4=1,1002=1"\n'
        '9,u2,60,1609459200,1609459300,1609459400,1,,normal,3,"1=40,4=1"\n'
        "10,u2,60,1609459200,0,0,0,,normal,4,\n"
    )
    jobs, account = read(head + rows, "slurm-log.csv")
    assert account.format == "rows of Slurm's database (MIT Supercloud)"
    names = ("job_id", "user", "gpus", "submit_time", "duration_s", "limit_s", "partition", "state")
    assert jobs.select(names).rows() == [
        ("7", "u1", 2, "2021-01-01T00:00:00Z", 3600.0, 86400.0, "normal", "done"),
        ("8", "u1", 1, "2021-01-01T00:00:00Z", 100.0, None, "normal", "timeout"),
    ]
    with pytest.raises(DataError, match="is no state of Slurm's database"):
        read(head + rows.replace(",normal,3,", ",normal,33,"), "slurm-log.csv")
    with pytest.raises(DataError, match=r"slurm-log.csv, line 2: the job has a negative number of GPUs \(-2;"):
        read(head + rows.replace("1001=2", "1001=-2"), "slurm-log.csv")
