"""What squeue prints, as it is: its warts, what is left out, and what is refused."""

import json
from pathlib import Path

import pytest

from noonward.errors import DataError
from noonward.live.advise.squeue import EXPORT, parse_queue

TABLE = """JOBID|PARTITION|STATE|TIME_LIMIT|TIME_LEFT|NODES|TASKS|TRES_PER_JOB|TRES_PER_NODE|TRES_PER_TASK|REASON|\
COMMAND|NAME|
2|gpu|PENDING|30:00|30:00|1|1|N/A|gres:gpu:1|N/A|Resources|/home/a b/train.sh|plain|
3|gpu|PENDING|1-02:04:00|1-02:04:00|2|1|gres:gpu:4|N/A|N/A|Priority|(null)|gpus per job|
4|gpu|PENDING|1:00:00|1:00:00|2|2|N/A|gres:gpu:fake:2|N/A|Priority|(null)|a|b|
5_[0-3,9%2]|gpu|PENDING|10:00|10:00|1|1|N/A|gres:gpu:1|N/A|Priority|(null)|array|
6|gpu|PENDING|5:00|5:00|1|1|N/A|gres:gpu:1|N/A|JobHeldUser|(null)|held|
7|gpu|PENDING|UNLIMITED|UNLIMITED|1|1|N/A|gres:gpu:1|N/A|Dependency|(null)||
11|gpu|PENDING|5:00|5:00|2-3|1|N/A|gres:gpu:2|N/A|Priority|(null)|range|
12|gpu|PENDING|5:00|5:00|2|3|N/A|N/A|gres:gpu:1|Priority|(null)|pertask|
13+0|gpu|PENDING|5:00|5:00|2|3|N/A|gres:gpu:1|N/A|Priority|(null)|half|
1|gpu|RUNNING|2:00:00|1:59:57|4|4|N/A|gres:gpu:2|N/A|None|(null)|full|
9|gpu|RUNNING|5:00|4:59|1|1|N/A|N/A|N/A|None|(null)|cpu only|
10|gpu|COMPLETED|5:00|4:59|1|1|N/A|gres:gpu:1|N/A|None|(null)|over|
"""
"""Output of EXPORT, with what Slurm 22.05 wrote."""


def found(text, now_s=0.0):
    queue = parse_queue(text, "q.txt", now_s)
    return {job.id: (job.running, job.gpus, job.left_s, job.not_now) for job in queue.jobs}, queue


def test_jobs_arrays_gangs_and_reasons():
    jobs, queue = found(TABLE)
    assert jobs == {
        "2": (False, 1, 1800.0, ""),
        "3": (False, 4, 93840.0, ""),
        "4": (False, 4, 3600.0, ""),
        **{f"5_{task}": (False, 1, 600.0, "") for task in (0, 1, 2, 3, 9)},
        "6": (False, 1, 300.0, "its owner holds it"),
        "7": (False, 1, None, "it waits for other jobs"),
        "11": (False, 4, 300.0, ""),
        "12": (False, 3, 300.0, ""),
        "1": (True, 8, 7197.0, ""),
    }
    by_id = {job.id: job for job in queue.jobs}
    assert (by_id["2"].command, by_id["3"].command) == ("/home/a b/train.sh", None)
    assert by_id["4"].name == "a|b"
    assert queue.notes == [
        "q.txt: 1 parts of heterogeneous jobs are left out",
        "q.txt: 1 jobs without GPUs are left out",
    ]


def test_json_of_slurm_22_05_says_the_same_as_its_table():
    text = (Path(__file__).parent / "slurm_22_05.json").read_text()
    jobs, queue = found(text, now_s=1795340058.0)
    assert jobs["1"] == (True, 8, 7197.0, "")
    assert jobs["3"] == (False, 4, 93840.0, "")
    assert [number for number in jobs if number.startswith("5_")] == [f"5_{task}" for task in range(10)]
    assert jobs["10"] == (False, 1, None, "")
    assert jobs["11"] == (False, 6, 300.0, "")
    assert "9" not in jobs
    assert {job.cluster for job in queue.jobs} == {"a"}


def test_json_of_newer_versions_marks_unset_and_infinite_numbers():
    job = {
        "job_id": 7, "job_state": ["PENDING"], "name": "n", "partition": "p", "cluster": "c", "state_reason": "None",
        "time_limit": {"set": True, "infinite": False, "number": 90}, "node_count": {"set": True, "number": 2},
        "end_time": {"set": False, "infinite": False, "number": 0}, "tres_per_node": "gres/gpu:a100:4",
        "array_job_id": {"set": True, "number": 0}, "array_task_id": {"set": False, "number": 0}, "tasks": 4,
    }  # fmt: skip
    endless = {**job, "job_id": 8, "time_limit": {"set": True, "infinite": True, "number": 0}, "tres_per_job": "gpu:3"}
    running = {
        **job, "job_id": 9, "job_state": ["RUNNING", "COMPLETING"], "end_time": {"set": True, "number": 1100},
    }  # fmt: skip
    content = {"jobs": [job, endless, running], "last_update": 1000}
    jobs, _ = found(json.dumps(content))
    assert jobs == {"7": (False, 8, 5400.0, ""), "8": (False, 3, None, ""), "9": (True, 8, 100.0, "")}


def test_tables_of_several_clusters_and_of_few_columns():
    text = (
        "CLUSTER: north\nJOBID|ST|TIME_LIMIT|NODES|TRES_PER_NODE|NODELIST(REASON)|TIME\r\n"
        "1|PD|10|1|gpu:2|(Priority)|0:00\r\n\nCLUSTER: south\n"
        "JOBID|ST|TIME_LIMIT|NODES|TRES_PER_NODE|NODELIST(REASON)|TIME\n2|R|1-12|1|gpu|a0|1:00:00\n3|PD|1|1|N/A|(Priority)|0:00\n"
    )
    jobs, queue = found(text)
    assert jobs == {"1": (False, 2, 600.0, ""), "2": (True, 1, 36 * 3600.0 - 3600.0, "")}
    assert [job.cluster for job in queue.jobs] == ["north", "south"]
    assert "jobs that ask with --gpus are not seen" in queue.notes[1]


SCREEN = """             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
                 2       gpu    plain     root PD       0:00      1 (Resources)
"""
LONG = "Sun Nov 22 09:34:18 2026\n" + SCREEN.replace(" ST  ", "STATE")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no output of squeue"),
        ("slurm_load_jobs error: Unable to contact slurm controller\n", "line 1: 'slurm_load_jobs error"),
        (SCREEN, "line 1: this is squeue's table for the screen"),
        (LONG, "line 2: this is squeue's table for the screen"),
        ("JOBID|NAME\n1|a\n", "there is no column State, TimeLimit, NumNodes, tres-per-job and tres-per-node"),
        (TABLE.replace("30:00|30:00", "30 min|30:00"), "line 2: the time limit is '30 min'"),
        (TABLE.replace("5_[0-3,9%2]", "5_[0-3,..."), "line 5: '5_[0-3,...' is no number of a job"),
        (TABLE.replace("5_[0-3,9%2]", "5_[0-3,...]"), "SLURM_BITSTR_LEN=0"),
        (TABLE.replace("5_[0-3,9%2]", "5_[0-99999999]"), "more than 10000 tasks"),
        (TABLE.replace("|2-3|", "|many|"), "nodes is 'many'"),
        (TABLE.replace("|N/A|N/A|gres:gpu:1|Pri", "|Pri"), "line 9: 10 fields, but the header names 13"),
        ("{", "is no output of squeue --json"),
        ('{"jobs": [{}]}', "is no output of squeue --json"),
        ('{"jobs": 1}', "is no output of squeue --json"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(text, words):
    with pytest.raises(DataError) as refused:
        parse_queue(text, "q.txt", 0.0)
    assert words in str(refused.value)
    assert str(refused.value).startswith("q.txt")


def test_a_missing_column_names_the_command_that_gives_it():
    with pytest.raises(DataError) as refused:
        parse_queue(SCREEN, "q.txt", 0.0)
    assert EXPORT in str(refused.value)
