"""What a service is started with, and which tasks it can carry out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from noonward.errors import ScenarioError, nearest
from noonward.live.edge.model_folder import ModelFolder
from noonward.live.edge.orders import Drawing, Limits, LoadPolicy
from noonward.live.edge.tasks import ImageTask
from noonward.model.edge.scenario import EdgeScenario


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a service is started with.

    Attributes:
        setting: Servers, gang times until they are measured, steps, quality, powers; its tasks are not used.
        models: Models that tasks may ask for; the first is the default.
        policy: Name of the scheduler, for the page.
        drawing: How images are generated.
        limits: Time limits.
        load_policy: Whether workers keep their models when gangs change.
        tries: Launches of a task before it fails.
    """

    setting: EdgeScenario
    models: tuple[ModelFolder, ...]
    policy: str = "scheduler"
    drawing: Drawing = field(default_factory=Drawing)
    limits: Limits = field(default_factory=Limits)
    load_policy: LoadPolicy = "keep"
    tries: int = 2


def gang_sizes(setting: EdgeScenario) -> list[int]:
    """Returns the gang sizes that a scenario has times and servers for."""
    return sorted(size for size in setting.gang_times if size <= setting.servers.count)


def new_task(
    plan: Plan,
    number: int,
    prompt: str,
    gang: int,
    seed: int | None,
    model: str | None,
    steps_max: float | None,
    now_unix_s: float,
    deadline_s: float | None,
) -> ImageTask:
    """Returns a task that a service can carry out; arguments as in ``Controller.submit``.

    Raises:
        ScenarioError: It cannot; the message says what is allowed.
    """
    setting, names = plan.setting, [each.name for each in plan.models]
    name = names[0] if model is None else model
    if name not in names:
        raise ScenarioError(f"--model {name!r} is not one of the service's; {nearest(name, names)}")
    if gang not in gang_sizes(setting):
        raise ScenarioError(f"--gang {gang}; allowed: {', '.join(map(str, gang_sizes(setting)))}")
    if steps_max is not None and not max(1.0, setting.steps_min) <= steps_max <= setting.steps_max:
        least = max(1.0, setting.steps_min)
        raise ScenarioError(f"--steps-max {steps_max:g}; allowed: {least:g} to {setting.steps_max:g}")
    if deadline_s is not None and not 0 < deadline_s < math.inf:
        raise ScenarioError(f"--deadline {deadline_s:g} s; give a number of seconds above 0")
    if not prompt.strip():
        raise ScenarioError("the prompt is empty; say what to draw")
    if seed is not None and not 0 <= seed < 2**63:
        raise ScenarioError(f"--seed {seed}; allowed: 0 to 2^63 - 1")
    return ImageTask(
        id=f"image-{number:06}",
        prompt=prompt,
        seed=number if seed is None else seed,
        gang=gang,
        model=name,
        steps_max=setting.steps_max if steps_max is None else steps_max,
        submitted_unix_s=now_unix_s,
        deadline_unix_s=None if deadline_s is None else now_unix_s + deadline_s,
    )
