"""``noonward edge`` with wrong input: refused before anything is started or written."""

import importlib.util
import json
from pathlib import Path

import pytest

needs_edge = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("ray", "diffusers", "psutil")),
    reason="the extra 'edge' is not installed",
)


@needs_edge
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["up", "tiny"], "is of kind 'cluster'; 'noonward edge' needs one of kind 'edge'"),
        (["up", "--policy", "patience"], "unknown policy 'patience'"),
        (["up", "--policy", "local-fcfs"], "local-fcfs"),
        (["up", "--parallelism", "displayed"], "did you mean 'displaced'?"),
        (["up", "--precision", "float8"], "--precision 'float8'"),
        (["up", "--load-policy", "reload"], "--load-policy 'reload'"),
        (["up", "--device", "tpu"], "--device 'tpu'"),
        (["up", "--model", "weights"], "weights has no transformer/config.json"),
        (["up", "--set", "servers.count=0"], "servers.count"),
        (["submit", "a boat"], "no service is up in runs/edge; start one by 'noonward edge up'"),
        (["status"], "no service is up in runs/edge"),
        (["down"], "no service is up in runs/edge"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_wrong_input_is_refused(noonward, words, says):
    answer = noonward("edge", *words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert says in answer.err
    assert not Path("runs").exists()


def test_a_missing_extra_is_named(noonward, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "diffusers" else find(name))
    answer = noonward("edge", "up")
    assert (answer.code, "pip install 'noonward[edge]'" in answer.err) == (2, True)


@needs_edge
def test_two_models_of_one_name_and_gangs_that_do_not_divide_an_image_are_refused(noonward):
    for part, file in (("transformer", "config.json"), ("vae", "config.json"), ("scheduler", "scheduler_config.json")):
        Path("w", part).mkdir(parents=True)
        Path("w", part, file).write_text(json.dumps({"_class_name": "PixArtTransformer2DModel", "sample_size": 60}))
    assert "two models are named 'w'" in noonward("edge", "up", "--model", "w", "--model", "w").err
    answer = noonward("edge", "up", "--model", "w", "--workers", 4)
    assert "30 rows of patches, which a gang of 4 cannot share evenly" in answer.err


@needs_edge
def test_a_service_that_cannot_start_says_why_and_leaves_nothing(noonward, tmp_path):
    from noonward.live.edge.client import processes_of

    for part, file in (("transformer", "config.json"), ("vae", "config.json"), ("scheduler", "scheduler_config.json")):
        Path("w", part).mkdir(parents=True)
        Path("w", part, file).write_text(json.dumps({"_class_name": "PixArtTransformer2DModel", "sample_size": 64}))
    answer = noonward("edge", "up", "--model", "w", "--ray", "127.0.0.1:1x", "--folder", "e")
    assert (answer.code, answer.out) == (2, "")
    assert "no Ray cluster answers at '127.0.0.1:1x'" in answer.err
    assert processes_of(tmp_path / "e") == []
    assert not Path("e", "service.json").exists()
