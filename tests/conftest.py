"""Small comparisons that several tests read."""

import logging

import pytest

from noonward.bound.cluster_energy import fluid_frontier
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.evaluate import conformance
from noonward.evaluate.compare import compare
from noonward.schedule.cluster import catalogue as cluster
from noonward.schedule.edge import catalogue as edge
from noonward.schedule.edge import goal, trained_policy
from noonward.schedule.policies import default_registry, using
from noonward.schedule.registry import Registry
from trained_files import NETS


def pytest_itemcollected(item):
    """Keeps the tests of a file that shares a fixture on one worker, so that the fixture is made once."""
    fixtures = getattr(item, "_fixtureinfo", None)
    if fixtures is None or item.get_closest_marker("xdist_group"):
        return
    if any(each[-1].scope == "module" for each in fixtures.name2fixturedefs.values()):
        item.add_marker(pytest.mark.xdist_group(item.path.name))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Puts slow tests first, in whatever order they are: a long one at the end would leave the other cores idle."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish(session):
    """Raises if groups do not reach the scheduler of tests: Ray's clusters would then run side by side."""
    if getattr(session.config.option, "loadgroup", False):
        lost = [
            item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        if lost:
            raise pytest.UsageError(
                f"pytest-xdist does not see groups of tests with pytest {pytest.__version__} ({lost[0]}); install the "
                "versions of pyproject.toml: pip install -e '.[dev]'"
            )


@pytest.fixture(autouse=True)
def same_logging():
    """Undoes what a test, or a library that it imports, does to the root logger: later tests would print its lines."""
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    yield
    root.setLevel(before[0])
    root.handlers = before[1]


@pytest.fixture
def own_registry():
    """A copy of the registry: what a test registers is gone after it."""
    with using(default_registry().copy()) as registry:
        yield registry


@pytest.fixture
def further_seeds():
    """A registry of the packaged policies and those of further training seeds."""
    registry = Registry()
    cluster.add_policies(registry, NETS / "cluster")
    edge.add_policies(registry, NETS / "edge")
    with using(registry):
        yield registry


@pytest.fixture
def few_jobs(monkeypatch):
    """Makes the worlds of a conformance check smaller: a job that waits is asked about in every slot."""
    monkeypatch.setattr(conformance, "JOBS", 20)


@pytest.fixture
def few_sampled_tasks(monkeypatch):
    """Makes policies that hold a mean quality find its price on few tasks, where it matters little."""
    monkeypatch.setitem(goal.rehearsed.__kwdefaults__, "tasks", 1000)
    monkeypatch.setattr(trained_policy, "EPISODES", 10)


@pytest.fixture(scope="session")
def money(tmp_path_factory):
    """Four policies in two environments of two sites, with utilities and bounds."""
    scenario = load_scenario("tiny")
    policies = ["price-greedy", "local-fcfs", "random", "booked-perfect"]
    return compare(scenario, policies, environments=2, seed=3, out=tmp_path_factory.mktemp("money"))


@pytest.fixture(scope="session")
def energy(tmp_path_factory):
    """Three policies in two environments of eight sites over three hours, without economics."""
    scenario = load_scenario("dvfs-training", ["window_h=3"])
    return compare(
        scenario, ["dp", "jointnf", "greedy-energy(gpus=2)"], environments=2, out=tmp_path_factory.mktemp("energy")
    )


@pytest.fixture(scope="session")
def frontier(energy):
    environment = build_environment(energy.scenario, 0, energy.seed)
    arrived = environment.jobs.arrival_s_J <= environment.window_s
    return fluid_frontier(
        environment.fleet,
        work=float(environment.jobs.work_J[arrived].sum()),
        horizon_s=environment.window_s,
        jobs=int(arrived.sum()),
        job_class="training",
        points=5,
    )


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """The published runs' baselines on their own job stream."""
    scenario = load_scenario("dvfs-training", ["jobs={source: paper-stream}"])
    return compare(scenario, ["dp", "ucb1", "jointnf"], environments=1, out=tmp_path_factory.mktemp("published"))
