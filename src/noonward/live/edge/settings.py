"""What a service is started with: checked where the user gives it, written to its folder, read by the service."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.errors import DataError, ScenarioError
from noonward.live.edge.controller import Controller
from noonward.live.edge.model_folder import ModelFolder, require_gangs
from noonward.live.edge.orders import Drawing, Limits, LoadPolicy
from noonward.live.edge.plan import Plan, gang_sizes
from noonward.live.edge.ray_workers import LOCAL, RayWorkers
from noonward.live.edge.tasks import TaskStore
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream

Device = Literal["auto", "cpu", "cuda"]
PLAIN: Final = ("policy", "load_policy", "tries", "retain_s", "ray", "device", "seed", "batch")
"""Fields of ``Settings`` that are plain values."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a service is started with.

    Attributes:
        setting: Its scenario.
        policy: Name of the scheduler.
        models: Its models; the first is the default.
        drawing: How images are generated.
        limits: Time limits.
        load_policy: Whether workers keep their models when gangs change.
        tries: Launches of a task that may fail by the task itself before it fails.
        retain_s: Seconds after its end that a task is kept.
        ray: ``local`` or the address of a Ray cluster.
        device: Where workers compute.
        seed: Seed of the scheduler's random stream.
        batch: Most images of equal requests that a launch draws at once.
    """

    setting: EdgeScenario
    policy: str
    models: tuple[ModelFolder, ...]
    drawing: Drawing = field(default_factory=Drawing)
    limits: Limits = field(default_factory=Limits)
    load_policy: LoadPolicy = "keep"
    tries: int = 2
    retain_s: float = 30 * 86_400.0
    ray: str = LOCAL
    device: Device = "auto"
    seed: int = 0
    batch: int = 1

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                raise ScenarioError(f"two models are named {name!r}; give other names by --model NAME=FOLDER")
        for model in self.models:
            require_gangs(model, gang_sizes(self.setting))
        if self.setting.steps_max > 1000:
            raise ScenarioError(f"steps_max is {self.setting.steps_max:g}; a model has at most 1000 inference steps")

    def as_text(self) -> str:
        """Returns the content of the service's settings file."""
        content = {name: getattr(self, name) for name in PLAIN}
        content |= {"scenario": self.setting.model_dump(mode="json"), "models": [asdict(each) for each in self.models]}
        content |= {"drawing": asdict(self.drawing), "limits": asdict(self.limits)}
        return json.dumps(content, indent=1) + "\n"


def read_settings(path: Path) -> Settings:
    """Returns what ``Settings.as_text`` wrote.

    Raises:
        DataError: The file is missing or damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Settings(
            setting=scenario_from(content.pop("scenario"), str(path)),
            models=tuple(ModelFolder(**model) for model in content.pop("models")),
            drawing=Drawing(**content.pop("drawing")),
            limits=Limits(**content.pop("limits")),
            **content,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} holds no settings of a service: {error}; start it by 'noonward edge up'") from error


def edge_scenario(name: str, changes: Sequence[str] = ()) -> EdgeScenario:
    """Returns a scenario of kind ``edge``.

    Raises:
        ScenarioError: There is no such scenario, or it is of another kind.
    """
    setting = load_scenario(name, changes)
    if not isinstance(setting, EdgeScenario):
        raise ScenarioError(f"scenario {name!r} is of kind {setting.kind!r}; 'noonward edge' needs one of kind 'edge'")
    return setting


def workers_for(servers: int, asked: int | None, ray: str, device: Device | str) -> tuple[int, str]:
    """Returns how many workers a service has, and why, for a message.

    On this machine, unless the user says otherwise, no more than there are GPUs (``cuda``, or ``auto`` where there is
    one) or cores: more would only take each other's time. A cluster has what it says when it is joined.

    Args:
        servers: Servers of the scenario.
        asked: Workers that the user asked for; None: as many as are right.
        ray: ``local`` or the address of a Ray cluster.
        device: Where workers compute.

    Example:
        >>> workers_for(4, 3, "local", "cpu")
        (3, '')
        >>> workers_for(4, None, "auto", "cuda")
        (4, '')
    """
    if asked is not None or ray != LOCAL:
        return asked or servers, ""
    gpus, cores = gpus_found(), len(os.sched_getaffinity(0))
    most, what = (gpus, "GPUs") if device == "cuda" or (device == "auto" and gpus >= servers) else (cores, "cores")
    if servers <= most or most == 0:
        return servers, ""
    return most, f" (this machine has {most} {what}; the scenario has {servers} servers: --workers {servers})"


def with_servers(setting: EdgeScenario, count: int) -> EdgeScenario:
    """Returns a scenario with another number of servers; the law of its tasks keeps the gang sizes that fit them.

    Raises:
        ScenarioError: None fits.

    Example:
        >>> with_servers(edge_scenario("edge-inference"), 2).tasks.sizes
        (1, 2)
    """
    sizes = tuple(size for size in setting.tasks.sizes if size <= count)
    if not sizes:
        least = min(setting.tasks.sizes)
        raise ScenarioError(f"{count} workers; the scenario's smallest gang needs {least}: --workers {least}")
    servers = setting.servers.model_copy(update={"count": count})
    return setting.model_copy(update={"servers": servers, "tasks": setting.tasks.model_copy(update={"sizes": sizes})})


def gpus_found() -> int:
    """Returns the NVIDIA GPUs of this machine that its programs may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return len([word for word in named.split(",") if word.strip() not in ("", "-1")])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def edge_scheduler(name: str) -> EdgeScheduler:
    """Returns a fresh scheduler of edge scenarios by its name.

    Raises:
        ScenarioError: There is no such policy, or it is one of another kind of scenarios.
    """
    made = make_scheduler(name, "edge")
    if not isinstance(made, EdgeScheduler):
        raise ScenarioError(
            f"policy {name!r} does not decide about edge servers; 'noonward policies' lists those that do"
        )
    if made.forecast is not None:
        raise ScenarioError(f"policy {name!r} needs forecasts of price and carbon, which this service does not have")
    return made


def controller_maker(settings: Settings) -> Callable[..., Controller]:
    """Returns what makes a service's controller, with workers on Ray."""

    def make(
        post: Callable[[Callable[[], None]], None], store: TaskStore, clock: Callable[[], float], start: datetime
    ) -> Controller:
        plan = Plan(
            setting=settings.setting,
            models=settings.models,
            policy=settings.policy,
            drawing=settings.drawing,
            limits=settings.limits,
            load_policy=settings.load_policy,
            tries=settings.tries,
            retain_s=settings.retain_s,
            device=settings.device,
            batch=settings.batch,
        )
        scheduler = edge_scheduler(settings.policy)
        count, precision = settings.setting.servers.count, settings.drawing.precision
        workers = RayWorkers(count, settings.ray, settings.device, precision, post)
        rng = stream(settings.seed, "policy")
        try:
            return Controller(plan, scheduler, workers, store, clock, start, rng)
        except BaseException:
            workers.close()
            raise

    return make
