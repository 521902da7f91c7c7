"""How many workers a service has: those that the machine can hold, unless the user says otherwise."""

import json

import pytest

from noonward.errors import NoonwardError, ScenarioError
from noonward.live.edge import settings
from noonward.live.edge.client import LOG, Client
from noonward.live.edge.model_folder import ModelFolder
from noonward.live.edge.service import ADDRESS
from noonward.live.edge.settings import (
    Settings,
    edge_scenario,
    gpus_found,
    read_settings,
    with_servers,
    workers_for,
)


@pytest.mark.parametrize(
    ("cores", "gpus", "asked", "ray", "device", "expected"),
    [
        (2, 0, None, "local", "auto", 2),
        (2, 0, 40, "local", "auto", 40),
        (64, 0, None, "local", "auto", 40),
        (2, 8, None, "local", "cuda", 8),
        (2, 64, None, "local", "auto", 40),
        (2, 8, None, "local", "auto", 2),
        (2, 0, None, "auto", "auto", 40),
    ],
)
def test_workers_are_as_many_as_cores_or_gpus_are_found(monkeypatch, cores, gpus, asked, ray, device, expected):
    monkeypatch.setattr(settings.os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus))))
    count, why = workers_for(40, asked, ray, device)
    assert count == expected
    assert ("--workers 40" in why) == (expected < 40)


def test_gpus_that_are_hidden_are_not_found(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0, 3")
    assert gpus_found() == 2
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert gpus_found() == 0


def test_a_client_tells_why_the_service_has_ended(tmp_path):
    gone = 2**22 - 1
    (tmp_path / ADDRESS).write_text(json.dumps({"pid": gone, "port": 9, "token": "x", "version": 1}))
    (tmp_path / LOG).write_text("warning: slow\nerror: the disk is full:\n  that of /models\n")
    with pytest.raises(NoonwardError, match="has ended: the disk is full: that of /models; 'noonward"):
        Client(tmp_path).status()


@pytest.mark.parametrize("name", ["edge-inference", "edge-inference-reference", "edge-inference-real"])
def test_a_scenario_with_fewer_servers_is_read_back_with_the_gangs_that_fit(tmp_path, name):
    model = ModelFolder(name="tiny", path="/models/tiny", rows=32, text=False)
    given = Settings(setting=with_servers(edge_scenario(name), 2), policy="patient-reuse", models=(model,), batch=3)
    (tmp_path / "settings.json").write_text(given.as_text())
    found = read_settings(tmp_path / "settings.json")
    assert found == given
    assert (found.setting.servers.count, found.setting.tasks.sizes) == (2, (1, 2))


def test_too_few_workers_for_any_gang_are_refused():
    with pytest.raises(ScenarioError, match="1 workers; the scenario's smallest gang needs 2: --workers 2"):
        with_servers(edge_scenario("edge-inference", ["tasks.sizes=[2,4]"]), 1)
