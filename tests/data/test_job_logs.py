"""Job logs of Slurm and Kubernetes and tables of any columns, made small with their warts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from noonward.data.account import Account
from noonward.data.clock import Clock
from noonward.data.jobs.classes import parse_class
from noonward.data.jobs.formats import import_jobs
from noonward.data.jobs.logs.log import LogOptions
from noonward.errors import DataError, ScenarioError

Read = Callable[..., tuple[pl.DataFrame, Account]]
BERLIN = Clock("Europe/Berlin")
SACCT = """\
State|JobID|Submit|Start|End|ElapsedRaw|AllocTRES|Cluster|Partition|JobName
COMPLETED|101|2022-10-01T10:00:00|2022-10-01T10:30:00|2022-10-01T13:00:00|9000|billing=10,gres/gpu=4,gres/gpu:a100=4|bln|g|a|b
COMPLETED|101.batch|2022-10-01T10:30:00|2022-10-01T10:30:00|2022-10-01T13:00:00|9000|cpu=10|bln||batch
CANCELLED by 7|102_1|2022-10-01T00:00:00|2022-10-01T00:05:00|2022-10-01T01:05:00|3600|gres/gpu:a=1,gres/gpu:v=2|bln|g|
PENDING|102_[2-9]|2022-10-01T00:00:00|Unknown|Unknown|0||bln|gpu|c
CANCELLED by 1001|103|2022-10-01T00:00:00|None|2022-10-01T00:01:00|0|gres/gpu=1|bln|gpu|d
RUNNING|104|2022-10-01T00:00:00|2022-10-01T00:00:00|Unknown|50|gres/gpu=1|bln|gpu|e
COMPLETED|105|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T00:50:00|3000|cpu=4|bln|gpu|f
"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a file and reads it as a job log; options by name."""

    def read(text: str, name: str = "log.txt", **options: Any) -> tuple[pl.DataFrame, Account]:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return import_jobs(path, LogOptions(**options))

    return read


def reasons(account: Account, what: str = "dropped") -> dict[str, int]:
    """Returns what was done to how many rows, by its reason."""
    return {entry.why: entry.count for entry in account.entries if entry.what == what}


def test_sacct_gives_the_jobs_that_ran_on_gpus(read: Read) -> None:
    jobs, account = read(SACCT, clock=BERLIN)
    assert jobs.select("job_id", "submit_time", "start_time", "duration_s", "gpus", "origin", "gpu_type").rows() == [
        ("102_1", "2022-09-30T22:00:00Z", "2022-09-30T22:05:00Z", 3600.0, 3, "bln", None),
        ("101", "2022-10-01T08:00:00Z", "2022-10-01T08:30:00Z", 9000.0, 4, "bln", "a100"),
    ]
    assert reasons(account) == {
        "steps, which are part of their jobs": 1,
        "no GPU": 2,
        "never started": 1,
        "not ended when the log was written": 1,
    }
    assert (account.rows_in, account.rows_out) == (7, 2)
    assert reasons(account, "changed")["a separator within JobName was taken as part of it"] == 1


def test_every_row_of_a_log_is_in_the_account(read: Read) -> None:
    _, account = read(SACCT, clock=BERLIN)
    assert account.rows_in == account.rows_out + sum(reasons(account).values())


def test_the_columns_of_sacct_may_stand_in_any_order(read: Read) -> None:
    lines = [line.split("|")[:9] for line in SACCT.splitlines()]
    turned = "\n".join("|".join(reversed(fields)) for fields in lines)
    assert read(turned, clock=BERLIN)[0].equals(read(SACCT, clock=BERLIN)[0].drop("name"))


def test_parsable_output_ends_every_line_with_the_separator(read: Read) -> None:
    plain = "\n".join("|".join(line.split("|")[:9]) + "|" for line in SACCT.splitlines())
    assert read(plain, clock=BERLIN)[0].equals(read(SACCT, clock=BERLIN)[0].drop("name"))


FREE = "JobID|JobName|State|Submit|Start|End|ElapsedRaw|AllocTRES"
TIMES = "COMPLETED|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T01:00:00|3600|gres/gpu=2"


@pytest.mark.parametrize(
    ("head", "row", "name", "where"),
    [
        (FREE, f"1|a|b|{TIMES}", "a|b", "JobName"),
        (FREE, f"1|a|b|c|{TIMES}", "a|b|c", "JobName"),
        (f"{FREE}|", f"1|a|b|{TIMES}|", "a|b", "JobName"),
        (f"{FREE}|Reason", f"1|a|b|{TIMES}|", "a|b", "JobName"),
        (f"{FREE}|Comment", f"1|a|{TIMES}|x|y", "a", "Comment"),
        (f"{FREE}|Constraints", f"1|a|b|{TIMES}|h100", "a|b", "JobName"),
        (f"{FREE}|Constraints", f"1|a|{TIMES}|a100|h100", "a", "Constraints"),
        (FREE, f"1|a|{TIMES}|", "a", None),
    ],
)
def test_a_separator_is_given_back_to_the_free_text_that_holds_it(
    read: Read, head: str, row: str, name: str, where: str | None
) -> None:
    jobs, account = read(f"{head}\n{row}\n", clock=Clock("UTC"))
    assert jobs.select("name", "duration_s", "gpus", "state").rows() == [(name, 3600.0, 2, "done")]
    said = [entry.why for entry in account.entries if "separator" in entry.why]
    assert said == ([f"a separator within {where} was taken as part of it"] if where else [])


@pytest.mark.parametrize(
    "row",
    [
        f"2|a|{TIMES}|x",  # a value too many behind all columns
        f"2|a|{TIMES.replace('3600', '36|00')}",  # within a column that is no free text
    ],
)
def test_a_row_that_no_free_text_explains_is_one_error_or_left_out(read: Read, row: str) -> None:
    text = f"{FREE}\n1|a|{TIMES}\n{row}\n"
    with pytest.raises(DataError, match=r"line 3: 9 fields, but the header names 8; .*'\|'.*--parsable2.*--skip-bad N"):
        read(text, clock=Clock("UTC"))
    jobs, account = read(text, clock=Clock("UTC"), skip_bad=1)
    assert jobs["job_id"].to_list() == ["1"]
    assert reasons(account) == {"bad rows: 9 fields, but the header names 8": 1}


def test_a_row_that_two_free_texts_explain_differently_is_refused(read: Read) -> None:
    head = FREE.replace("State", "Account|Comment|State")
    with pytest.raises(DataError, match="line 2: 11 fields, but the header names 10"):
        read(f"{head}\n1|a|b|c|d|{TIMES}\n", clock=Clock("UTC"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{FREE}\n1|a|{TIMES}\n2|b|{TIMES}\n3|c|{TIMES}\n".replace("=2", "=-2", 2), "line 2: .*-2; rows .*: 2"),
        (f"{FREE}\n1|a|{TIMES}\n".replace("gpu=2", "gpu:a100=-4"), "line 2: .*-4"),
        (f"{FREE}\n1|a|{TIMES}\n".replace("AllocTRES", "AllocGRES").replace("gres/gpu=2", "gpu:-3"), "line 2: .*-3"),
        ("submit_time,gpus,duration_s\n2022-10-01T00:00Z,-1,1\n", "line 2, column 'gpus': the value '-1' is no whole"),
    ],
)
def test_a_negative_number_of_gpus_is_an_error_and_not_no_gpu(read: Read, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(text, clock=Clock("UTC"))


def test_rows_with_a_negative_number_of_gpus_can_be_left_out(read: Read) -> None:
    text = f"{FREE}\n1|a|{TIMES}\n2|b|{TIMES}\n".replace("=2", "=-2", 1)
    jobs, account = read(text, clock=Clock("UTC"), skip_bad=1)
    assert jobs["job_id"].to_list() == ["2"]
    assert reasons(account) == {"bad rows: a negative number of GPUs": 1}


@pytest.mark.parametrize(
    ("head", "row", "gpus"),
    [
        ("AllocTRES", "cpu=8,gres/gpu=2", 2),
        ("AllocTRES|ReqTRES", "|gres/gpu:h100=4", 4),
        ("AllocGRES|AllocNodes", "gpu:a100:4|2", 8),
        ("ReqGRES|NNodes", "gpu:2|3", 6),
        ("AllocTRES", "gres/gpu:1g.5gb=1", 1),
    ],
)
def test_gpus_stand_in_several_columns(read: Read, head: str, row: str, gpus: int) -> None:
    times = "2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T01:00:00|01:00:00"
    text = f"JobID|Submit|Start|End|Elapsed|{head}\n1|{times}|{row}\n"
    jobs, account = read(text, clock=Clock("UTC"))
    assert jobs["gpus"].to_list() == [gpus]
    assert ("slices of GPUs" in str(account.entries)) == ("1g.5gb" in row)


@pytest.mark.parametrize(
    ("elapsed", "seconds"), [("00:00:30", 30), ("1-02:03:04", 93784), ("05:06", 306), ("100:00:00", 360000)]
)
def test_elapsed_times_are_read_in_all_their_forms(read: Read, elapsed: str, seconds: int) -> None:
    text = f"JobID|Submit|Start|Elapsed|AllocTRES\n1|2022-10-01T00:00:00|2022-10-01T00:00:00|{elapsed}|gres/gpu=1\n"
    assert read(text, clock=Clock("UTC"))[0]["duration_s"].to_list() == [seconds]


def test_a_job_that_was_requeued_is_two_jobs_and_the_same_record_twice_is_one(read: Read) -> None:
    row = "1|2022-10-01T00:00:00|2022-10-01T0{}:00:00|2022-10-01T0{}:30:00|1800|gres/gpu=1\n"
    text = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n" + row.format(0, 0) + row.format(2, 2) + row.format(2, 2)
    jobs, account = read(text, clock=Clock("UTC"))
    assert len(jobs) == 2
    assert reasons(account) == {"the same job once more": 1}


def test_times_of_the_repeated_hour_are_summer_time_and_counted(read: Read) -> None:
    row = "{}|2022-10-30T02:30:00|2022-10-30T04:00:00|2022-10-30T05:00:00|3600|gres/gpu=1\n"
    jobs, account = read("JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n" + row.format(1) + row.format(2), clock=BERLIN)
    assert jobs["submit_time"].to_list() == ["2022-10-30T00:30:00Z"] * 2
    assert reasons(account, "changed")["Submit: times of the repeated autumn hour, taken as summer time"] == 2


def test_a_job_that_would_end_before_it_starts_in_the_repeated_hour_ends_an_hour_later(read: Read) -> None:
    row = "{}|2022-10-30T02:{}:00|2022-10-30T02:{}:00|2022-10-30T02:{}:00|gres/gpu=1\n"
    text = "JobID|Submit|Start|End|AllocTRES\n" + row.format(1, 40, 50, 10) + row.format(2, 40, 20, 30)
    jobs, account = read(text, clock=BERLIN)
    assert jobs.select("start_time", "end_time", "duration_s").rows() == [
        ("2022-10-30T00:50:00Z", "2022-10-30T01:10:00Z", 1200.0),
        ("2022-10-30T01:20:00Z", "2022-10-30T01:30:00Z", 600.0),
    ]
    changed = reasons(account, "changed")
    says = "times of the repeated autumn hour, taken as standard time: as summer time they precede"
    assert (changed[f"start_time: {says} submit_time"], changed[f"end_time: {says} start_time"]) == (1, 2)
    late = "JobID|Submit|Start|End|AllocTRES\n" + row.format(1, 40, 50, 10).replace("10-30T02", "10-31T02")
    with pytest.raises(DataError, match="the job ends before it starts"):
        read(late, clock=BERLIN)


def test_places_may_get_other_names(read: Read) -> None:
    assert read(SACCT, clock=BERLIN, origins={"bln": "berlin"})[0]["origin"].unique().to_list() == ["berlin"]
    assert read(SACCT, clock=BERLIN, origin="here")[0]["origin"].unique().to_list() == ["here"]


def job(name: str, gpus: int, status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": "2022-10-01T00:00:00Z"},
        "spec": {"template": {"spec": {"containers": [container, {}]}}, **spec},
        "status": status,
    }


def test_kubernetes_jobs_take_gpus_times_parallelism(read: Read) -> None:
    started = {"startTime": "2022-10-01T00:10:00Z"}
    failed = {"conditions": [{"type": "Failed", "lastTransitionTime": "2022-10-01T00:20:00Z"}]}
    items = [
        job("done", 4, started | {"completionTime": "2022-10-01T01:10:00Z"}, parallelism=2),
        job("failed", 1, started | failed),
        job("waiting", 1, {}),
        job("running", 1, started),
        job("cpu", 0, started | {"completionTime": "2022-10-01T01:10:00Z"}),
        {"kind": "Pod"},
    ]
    jobs, account = read(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "jobs.json", origin="k8s")
    assert jobs.select("job_id", "duration_s", "gpus", "origin", "state").rows() == [
        ("ml/done", 3600.0, 8, "k8s", "done"),
        ("ml/failed", 600.0, 1, "k8s", "failed"),
    ]
    assert reasons(account) == {
        "objects other than Jobs": 1,
        "no GPU": 1,
        "never started": 1,
        "not ended when the log was written": 1,
    }


def test_a_kubernetes_job_with_a_negative_number_of_gpus_is_refused(read: Read) -> None:
    done = {"startTime": "2022-10-01T00:00:00Z", "completionTime": "2022-10-01T01:00:00Z"}
    items = [job("a", 2, done), job("b", -2, done)]
    with pytest.raises(DataError, match=r"job 'ml/b': nvidia\.com/gpu is -2, but .* at least 0"):
        read(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "jobs.json")


def test_init_containers_count_by_the_largest(read: Read) -> None:
    done = {"startTime": "2022-10-01T00:00:00Z", "completionTime": "2022-10-01T01:00:00Z"}
    one = job("a", 2, done)
    one["spec"]["template"]["spec"]["initContainers"] = [{"resources": {"limits": {"amd.com/gpu": "8"}}}]
    assert read(json.dumps({"apiVersion": "batch/v1", **one}), "job.json")[0]["gpus"].to_list() == [8]


def test_a_table_of_ones_own_is_read_by_the_names_that_are_told(read: Read) -> None:
    text = "Auftrag;Eingang;Karten;Dauer\nx;01.10.2022 12:00;4;1,5\n"
    told = {"job_id": "Auftrag", "submit_time": "Eingang", "gpus": "Karten", "duration_h": "Dauer"}
    jobs, _ = read(text, "jobs.csv", clock=BERLIN, columns=told, format="jobs")
    assert jobs.rows() == [("x", "2022-10-01T10:00:00Z", 5400.0, 4)]


def test_usual_names_need_not_be_told(read: Read) -> None:
    text = (
        "job_id,submitted,started,ended,num_gpus\n7,2022-10-01T00:00:00Z,2022-10-01T01:00:00Z,2022-10-01T03:00:00Z,2\n"
    )
    jobs, account = read(text, "jobs.csv")
    assert jobs.select("job_id", "duration_s", "gpus").rows() == [("7", 7200.0, 2)]
    assert account.format == "table of jobs"


HEAD = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n"
ROW = "1|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T01:00:00|3600|gres/gpu=1\n"


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (HEAD + ROW, {}, "line 2, column 'Submit'.*no time zone.*--timezone Europe/Berlin"),
        (HEAD + ROW, {"clock": BERLIN, "origins": {"bln": "b"}}, "names 'bln', where no job"),
        (HEAD, {"clock": BERLIN}, "a header and no job"),
        (HEAD + ROW.replace("|3600|", "|3600|x|"), {"clock": BERLIN}, "line 2: 7 fields, but the header names 6"),
        (HEAD + ROW.replace("2022-10-01T00", "2022-13-01T00", 1), {"clock": BERLIN}, "not a valid date or time"),
        (HEAD + ROW.replace("2022-10-01T00", "2022-03-27T02", 1), {"clock": BERLIN}, "which skips that hour"),
        (HEAD + ROW.replace("3600", "soon"), {"clock": BERLIN}, "column 'ElapsedRaw': the value 'soon' is not"),
        (HEAD + ROW.replace("gres/gpu", "cpu"), {"clock": BERLIN}, "no job with GPUs that ran; .*dropped 1: no GPU"),
        (HEAD.replace("AllocTRES", "Nodes") + ROW, {"clock": BERLIN}, "neither AllocTRES nor ReqTRES.*--format"),
        (HEAD.replace("Submit", "Sub") + ROW, {"clock": BERLIN}, "no column 'Submit'; "),
        (HEAD + ROW.replace("1|", "1.batch|", 1), {"clock": BERLIN}, "contains only steps"),
        ("JobID    State\n-------- --------\n1  C\n", {"clock": BERLIN}, "sacct -X --parsable2"),
        ("a,b\n1,2\n", {}, "no job log of a known format"),
        ("a,b\n1,2\n", {"format": "slrum"}, "did you mean 'slurm'"),
        ('{"apiVersion": 1, "kind": "List", "items": [{"kind": "Node"}]}', {}, "holds no Job"),
        ('{"apiVersion": 1, "kind": "List", "items": [', {}, "not valid JSON"),
        ('{"apiVersion": 1, "kind": "Job", "metadata": {}}', {}, "job 'default/': .*kubectl"),
        ("submit_time,gpus\n2022-10-01T00:00Z,1\n", {}, "no column holds the run times.*--column 'duration_s=NAME'"),
        ("submit_time,gpus,duration_s\n2022-10-01T00:00Z,1.5,1\n", {}, "'1.5' is no whole number of GPUs"),
        ("submit_time,gpus,duration_s\n2022-10-01T00:00Z,1,-1\n", {}, "'-1' is negative"),
        ("submit_time,gpus,start_time,end_time\n2022-10-01T00:00Z,1,2022-10-02T00:00Z,2022-10-01T00:00Z\n", {},
         "line 2: the job ends before it starts"),
        ("submit_time,gpus\n2022-10-01T00:00Z,1\n", {"columns": {"gpu": "gpus"}}, "takes no key 'gpu'"),
    ],
)  # fmt: skip
def test_a_log_that_cannot_be_read_is_refused_with_a_remedy(
    read: Read, text: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        read(text, **options)


WHO = """\
JobID|Submit|Start|End|ElapsedRaw|AllocTRES|Partition|User|Account|Timelimit|State|QOS|JobName
1|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T01:00:00|3600|gres/gpu=1|dev|ada|nlp|1-00:00:00|COMPLETED|low|train
2|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T02:00:00|7200|gres/gpu=1|gpu|bob|cv|02:00:00|TIMEOUT|low|train
3|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T00:10:00|600|gres/gpu=1|gpu|ada|nlp|UNLIMITED|CANCELLED by 7|hi|x
4|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T00:10:00|600|gres/gpu=1|gpu|ada|nlp||NODE_FAIL|hi|y
5|2022-10-01T00:00:00|2022-10-01T00:00:00|2022-10-01T00:10:00|600|gres/gpu=1|gpu|ada|nlp|05:00|OUT_OF_MEMORY|hi|z
"""
DETAILS = ("job_id", "user", "team", "name", "partition", "limit_s", "state")


def test_who_asked_and_how_it_ended_is_kept(read: Read) -> None:
    jobs, account = read(WHO, clock=BERLIN)
    assert jobs.select(DETAILS).rows() == [
        ("1", "ada", "nlp", "train", "dev", 86400.0, "done"),
        ("2", "bob", "cv", "train", "gpu", 7200.0, "timeout"),
        ("3", "ada", "nlp", "x", "gpu", None, "cancelled"),
        ("4", "ada", "nlp", "y", "gpu", None, "node-fail"),
        ("5", "ada", "nlp", "z", "gpu", 300.0, "failed"),
    ]
    assert jobs["duration_s"].to_list() == [3600.0, 7200.0, 600.0, 600.0, 600.0]
    assert reasons(account, "read") == {
        "jobs that did not finish are kept with the time that they ran, since they took their GPUs: 1 cancelled, "
        "1 failed, 1 node-fail, 1 timeout; 2 of the log's 3 GPU-hours, no useful work": 4
    }


def test_hours_of_jobs_that_did_not_finish_count_where_a_log_has_run_times_alone(read: Read) -> None:
    text = "submit_time,gpus,duration_s,state\n2022-10-01T00:00Z,2,7200,done\n2022-10-01T00:00Z,3,7200,failed\n"
    _, account = read(text, "jobs.csv")
    assert [why.rpartition("; ")[2] for why in reasons(account, "read")][-1] == (
        "6 of the log's 10 GPU-hours, no useful work"
    )


def test_limits_are_read_with_their_unit(read: Read) -> None:
    raw = WHO.replace("Timelimit", "TimelimitRaw").replace("|1-00:00:00|", "|1440|").replace("|02:00:00|", "|120|")
    assert read(raw, clock=BERLIN)[0]["limit_s"].to_list() == [86400.0, 7200.0, None, None, 300.0]
    own = "submit_time,gpus,duration_s,{}\n2022-10-01T00:00Z,1,60,90\n"
    assert read(own.format("limit_min"))[0]["limit_s"].to_list() == [5400.0]
    with pytest.raises(DataError, match=r"column 'walltime': the value '90' is a number without a unit; .*limit_min="):
        read(own.format("walltime"))
    assert read(own.format("walltime"), columns={"limit_h": "walltime"})[0]["limit_s"].to_list() == [324000.0]


def test_a_column_of_a_known_format_may_be_another_one(read: Read) -> None:
    jobs, _ = read(WHO, clock=BERLIN, columns={"team": "QOS"})
    assert jobs["team"].to_list() == ["low", "low", "hi", "hi", "hi"]
    with pytest.raises(DataError, match=r"no column 'Acount'; did you mean 'Account'"):
        read(WHO, clock=BERLIN, columns={"team": "Acount"})
    with pytest.raises(DataError, match=r"Slurm accounting \(sacct\) takes no key 'gpus'"):
        read(WHO, clock=BERLIN, columns={"gpus": "QOS"})


@pytest.mark.parametrize(
    ("rules", "classes"),
    [
        (["interactive=Partition==dev"], ["interactive", "job", "job", "job", "job"]),
        (["a=User==bob", "b=QOS==hi|low"], ["b", "a", "b", "b", "b"]),
        (["short=limit_s<=7200"], ["job", "short", "job", "job", "short"]),
        (["x=Account!=nlp"], ["job", "x", "job", "job", "job"]),
    ],
)
def test_rules_give_jobs_their_class_by_any_column(read: Read, rules: list[str], classes: list[str]) -> None:
    jobs, _ = read(WHO, clock=BERLIN, classes=tuple(parse_class(rule) for rule in rules))
    assert jobs["class"].to_list() == classes
    assert not [name for name in jobs.columns if ":" in name]


def test_rules_that_cannot_be_read_or_name_no_column_are_refused(read: Read) -> None:
    for text, says in (("a", "is no rule; write NAME=COLUMN==VALUE"), ("a=gpus<few", "compares numbers, not 'few'"),
                       ("ä=User==x", "class name 'ä': use letters")):  # fmt: skip
        with pytest.raises(ScenarioError, match=says):
            parse_class(text)
    with pytest.raises(DataError, match=r"log.txt has no column 'Userr'; did you mean 'user'"):
        read(WHO, clock=BERLIN, classes=(parse_class("a=Userr==x"),))
    with pytest.raises(DataError, match="holds no number, so < compares nothing"):
        read(WHO, clock=BERLIN, classes=(parse_class("a=User<3"),))


def test_digests_are_equal_for_equal_names_and_other_under_another_salt(read: Read) -> None:
    jobs, account = read(WHO, clock=BERLIN, salt="one")
    assert jobs["user"][0] == jobs["user"][2] != jobs["user"][1]
    assert jobs["partition"].to_list() == ["dev", "gpu", "gpu", "gpu", "gpu"]
    text = jobs.write_csv()
    assert not [word for word in ("ada", "bob", "nlp", "train") if word in text]
    assert reasons(account, "changed")["job ids, users, teams and names became digests"] == 5
    assert read(WHO, clock=BERLIN, salt="one")[0].equals(jobs)
    assert read(WHO, clock=BERLIN, salt="two")[0]["user"][0] != jobs["user"][0]


def test_kubernetes_says_team_name_queue_and_limit(read: Read) -> None:
    over = {"type": "Failed", "reason": "DeadlineExceeded", "lastTransitionTime": "2022-10-01T01:00:00Z"}
    one = job("a", 1, {"startTime": "2022-10-01T00:00:00Z", "conditions": [over]}, activeDeadlineSeconds=3600)
    one["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "night"}
    jobs, _ = read(json.dumps({"apiVersion": "batch/v1", **one}), "job.json")
    assert jobs.select("job_id", "team", "name", "partition", "limit_s", "state").rows() == [
        ("ml/a", "ml", "a", "night", 3600.0, "timeout")
    ]
