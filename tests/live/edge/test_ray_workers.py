"""Workers as Ray actors, with a fake of Ray: what Ray refers to is let go of before Ray ends, or after."""

import gc
import queue
import sys
import types
from concurrent.futures import Future

import pytest

from noonward.live.edge.ray_workers import RayWorkers
from noonward.live.edge.workers import WorkerDiedError


class Reference:
    """What a call of an actor returns. Ray is told when nobody refers to it any longer."""

    def __init__(self, ray):
        self.ray, self.state = ray, Future()
        self.state.object_ref = self

    def future(self):
        return self.state

    def __del__(self):
        self.ray.let_go.append(self.ray.state)


class Actor:
    def __init__(self, ray):
        self.ray = ray

    def __getattr__(self, name):
        return types.SimpleNamespace(remote=self.remote)

    def remote(self, *arguments):
        reference = Reference(self.ray)
        self.ray.asked.append(reference.state)
        return reference


class ActorDiedError(Exception):
    pass


class Ray(types.ModuleType):
    """A Ray whose calls stay open until the test answers them. The garbage collector runs while it ends."""

    def __init__(self):
        super().__init__("ray")
        self.state, self.asked, self.let_go = "off", [], []
        self.exceptions = types.SimpleNamespace(
            ActorDiedError=ActorDiedError, RayTaskError=type("Other", (Exception,), {})
        )
        group = types.SimpleNamespace(wait=lambda seconds: True)
        self.util = types.SimpleNamespace(
            placement_group=lambda bundles, strategy: group, remove_placement_group=lambda group: None
        )

    def init(self, **options):
        self.state = "on"

    def cluster_resources(self):
        return {}

    def get_runtime_context(self):
        return types.SimpleNamespace(get_node_id=lambda: "node")

    def remote(self, made):
        return types.SimpleNamespace(options=lambda **options: types.SimpleNamespace(remote=lambda *given: Actor(self)))

    def kill(self, actor):
        """Fails all open calls of the actor, as Ray does."""
        while self.asked:
            self.asked.pop().set_exception(ActorDiedError("died"))

    def shutdown(self):
        self.state = "ending"
        gc.collect()
        self.state = "off"


@pytest.fixture
def ray(monkeypatch):
    pytest.importorskip("psutil")
    ray = Ray()
    strategies = types.ModuleType("ray.util.scheduling_strategies")
    strategies.PlacementGroupSchedulingStrategy = lambda group, n: n
    for name, module in (("ray", ray), ("ray.util", types.ModuleType("ray.util")), (strategies.__name__, strategies)):
        monkeypatch.setitem(sys.modules, name, module)
    return ray


def test_no_reference_is_let_go_while_ray_ends_and_none_is_kept(ray):
    inbox, replies = queue.SimpleQueue(), []

    def answered():
        """Does what was posted."""
        while not inbox.empty():
            inbox.get()()

    workers = RayWorkers(1, "local", "cpu", "float32", inbox.put)
    workers.start(0, replies.append)
    place, facts = ray.asked
    place.set_result((1, "elsewhere"))
    facts.set_exception(ActorDiedError("died"))  # its traceback refers to the future
    del place, facts
    ray.asked.clear()
    answered()
    assert [type(each) for each in replies] == [WorkerDiedError]
    assert ray.let_go == ["on", "on"], "what is answered is not kept, nor left to the garbage collector"

    for _ in range(3):
        workers.call(0, "beat", reply=replies.append)
    workers.restart(lambda answer: replies.append("again"))
    workers.close()
    answered()
    assert replies[-1] == "again"
    gc.collect()
    assert len(ray.let_go) == 5
    assert "ending" not in ray.let_go
