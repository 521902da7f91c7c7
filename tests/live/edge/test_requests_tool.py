"""The counting of ``tools/edge_requests.py``: what is lost, and what was done twice."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("msgspec")
pytest.importorskip("starlette")
pytest.importorskip("ray")

TOOL = Path(__file__).parents[3] / "tools" / "edge_requests.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("edge_requests", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its data classes look for their types
    spec.loader.exec_module(module)
    return module


def task(number, *errors):
    return {"id": f"image-{number}", "prompt": f"boat {number}", "attempts": [{"error": each} for each in errors]}


def answer(tool, number, *, name=None, own=True):
    return tool.Answer(prompt=f"boat {number}", task=f"image-{number}" if name is None else name, own=own)


def test_all_is_well_if_every_request_has_its_own_image_once(tool):
    tasks = [task(1, None), task(2, "the worker died", None)]
    found = tool.count([answer(tool, 1), answer(tool, 2)], tasks)
    assert found == {"acknowledged": 2, "answered": 2, "lost": 0, "twice": 0}


def test_a_request_without_its_own_image_is_lost(tool):
    tasks = [task(1, None), task(2, None)]
    answers = [answer(tool, 1, own=False), answer(tool, 2, name="", own=False), answer(tool, 3, name="", own=False)]
    assert tool.count(answers, tasks) == {"acknowledged": 2, "answered": 0, "lost": 3, "twice": 0}


def test_what_is_drawn_asked_or_answered_twice_is_counted(tool):
    tasks = [task(1, None, None), task(2, None), task(2, None), task(3, None), task(4, None), task(5, None)]
    answers = [answer(tool, n, name="image-3" if n == 4 else None) for n in (1, 2, 3, 4, 5)]
    assert tool.count(answers, tasks)["twice"] == 4
