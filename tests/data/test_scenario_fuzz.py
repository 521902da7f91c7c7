"""Whatever a scenario says, it is refused with one error of ours or it runs, in bounded memory."""

import contextlib
import copy
import math
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.engine.run import run
from noonward.errors import NoonwardError
from noonward.ledger.ledger import settle
from noonward.schedule.policies import make_scheduler

NAMES = ("tiny", "dvfs-mixed", "dvfs-training", "fine-tuning")
POLICIES = {"each-slot": ("price-greedy", "cheapest-feasible"), "on-arrival": ("dp", "greedy-energy(gpus=2)", "ucb1")}
ODD = (
    *(0, -1, 1, 0.5, 7, 2**31, 2**53, 10**30, 1e-300, 1e-30, 1e-12, 1e6, 1e18, 1e19, 1e300, -1e300),
    *(math.inf, -math.inf, math.nan, True, None, "", "x", "../x", "1e9", "\0", [], {}, [1, 2], [[1, 2], [3]], {"a": 1}),
)
IN_RANGE = (0, 1e-30, 1e-12, 1e-3, 1, 2, 1e3, 1e5, 1e9, 1e15, 1e18)
ROOM = 6 << 30
"""Memory that an example may take beside what the tests hold already, bytes."""


@cache
def content_of(name: str) -> dict[str, Any]:
    """Returns a packaged scenario over two hours with few jobs."""
    content = load_scenario(name, ["window_h=2"]).model_dump(mode="json")
    if "count" in content["jobs"]:
        content["jobs"]["count"] = 20
    return content


def places(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every value."""
    below = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in below:
        yield (*above, key)
        yield from places(value, (*above, key))


def at(node: Any, path: tuple[Any, ...]) -> Any:
    """Returns the value at a path."""
    for key in path:
        node = node[key]
    return node


@st.composite
def changed(draw: st.DrawFn, values: tuple[Any, ...], numbers_only: bool) -> dict[str, Any]:
    """Draws a packaged scenario with one to three values replaced."""
    content = copy.deepcopy(content_of(draw(st.sampled_from(NAMES))))
    for _ in range(draw(st.integers(1, 3))):
        paths = [path for path in places(content) if not numbers_only or type(at(content, path)) in (int, float)]
        *above, last = draw(st.sampled_from(paths))
        value = draw(st.sampled_from(values))
        whole = type(at(content, (*above, last))) is int and numbers_only and value == int(value)
        at(content, tuple(above))[last] = int(value) if whole else copy.deepcopy(value)
    if numbers_only:
        content["end"] = draw(st.sampled_from(("drained", "window")))
    return content


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(changed(ODD, numbers_only=False))
def test_odd_values_are_refused_or_make_an_environment(content: dict[str, Any]) -> None:
    with contextlib.suppress(NoonwardError):
        build_environment(scenario_from(content))


@FUZZ
@given(changed(IN_RANGE, numbers_only=True), st.data())
def test_extreme_numbers_are_refused_or_run(content: dict[str, Any], data: st.DataObject) -> None:
    with contextlib.suppress(NoonwardError):
        scenario = scenario_from(content)
        environment = build_environment(scenario)
        policy = data.draw(st.sampled_from(POLICIES[scenario.protocol]))
        assert settle(run(environment, make_scheduler(policy))).jobs == len(environment.jobs)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
        lambda below: (
            st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), below, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_any_yaml_is_refused(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    with pytest.raises(NoonwardError):
        load_scenario(path)
