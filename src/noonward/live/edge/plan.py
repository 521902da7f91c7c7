"""What a service is started with, and which tasks it can carry out."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from noonward.errors import ScenarioError, nearest
from noonward.live.edge.model_folder import ModelFolder
from noonward.live.edge.orders import Drawing, Limits, LoadPolicy
from noonward.live.edge.tasks import ImageTask
from noonward.model.edge.scenario import EdgeScenario

GUIDANCE_MOST: Final = 50.0
"""Largest scale of guidance."""
AREA_MOST: Final = 4
"""Largest image, in images of the model's own size."""
PROMPT_MOST: Final = 4_000
"""Longest prompt, characters; a model's own limit may be lower."""


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
        tries: Launches of a task that may fail by the task itself before it fails.
        losses: Launches of a task that may lose a worker before it fails: it may be what kills them.
        retain_s: Seconds after its end that a task is kept.
        device: Where workers compute: measured times hold for it alone.
        batch: Most images of equal requests that a launch draws at once.
    """

    setting: EdgeScenario
    models: tuple[ModelFolder, ...]
    policy: str = "scheduler"
    drawing: Drawing = field(default_factory=Drawing)
    limits: Limits = field(default_factory=Limits)
    load_policy: LoadPolicy = "keep"
    tries: int = 2
    losses: int = 10
    retain_s: float = 30 * 86_400.0
    device: str = "auto"
    batch: int = 1

    def measured_for(self) -> dict[str, Any]:
        """Returns what measured times depend on, as JSON values."""
        return {"models": [each.path for each in self.models], "drawing": asdict(self.drawing), "device": self.device}


def gang_sizes(setting: EdgeScenario) -> list[int]:
    """Returns the gang sizes that a scenario has times and servers for."""
    return sorted(size for size in setting.gang_times if size <= setting.servers.count)


def new_task(
    plan: Plan,
    number: int,
    prompt: Any,
    gang: Any,
    seed: Any,
    model: Any,
    steps_max: Any,
    now_unix_s: float,
    deadline_s: Any,
    negative: Any = None,
    guidance: Any = None,
    size: Any = None,
) -> ImageTask:
    """Returns a task that a service can carry out; arguments as in ``Controller.submit``, of any type.

    Raises:
        ScenarioError: It cannot; the message says what is allowed.
    """
    _require_text("the prompt", prompt)
    _require_whole("--gang", gang)
    if seed is not None:
        _require_whole("--seed", seed)
    if model is not None:
        _require_text("--model", model)
    if negative is not None:
        _require_text("--negative", negative)
    for name, value in (("--steps-max", steps_max), ("--deadline", deadline_s), ("--guidance", guidance)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ScenarioError(f"{name} is {_shown(value)}; give a number")
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
    if len(prompt) > PROMPT_MOST:
        raise ScenarioError(f"the prompt has {len(prompt)} characters; allowed: {PROMPT_MOST}; shorten it")
    if guidance is not None and not 1 <= guidance <= GUIDANCE_MOST:
        raise ScenarioError(f"--guidance {guidance:g}; allowed: 1 (none) to {GUIDANCE_MOST:g}")
    chosen = plan.models[names.index(name)]
    scale = guidance or plan.drawing.guidance or (None if chosen.text else 1)
    if negative and scale == 1:
        raise ScenarioError("a negative prompt works by guidance, which is 1 (none) here; give --guidance above 1")
    if negative and len(negative) > PROMPT_MOST:
        raise ScenarioError(f"--negative has {len(negative)} characters; allowed: {PROMPT_MOST}; shorten it")
    width, height = (None, None) if size is None else _sides(size, chosen, gang)
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
        negative=negative or "",
        guidance=None if guidance is None else float(guidance),
        width=width,
        height=height,
    )


def _sides(size: Any, model: ModelFolder, gang: int) -> tuple[int, int]:
    """Returns width and height of an image, pixels, from ``WIDTHxHEIGHT``.

    Raises:
        ScenarioError: The model cannot draw it, or a gang of that size cannot share it.
    """
    words = size.split("x") if isinstance(size, str) else []
    if len(words) != 2 or not all(word.isascii() and word.isdigit() and len(word) <= 5 for word in words):
        raise ScenarioError(
            f"--size is {_shown(size)}; give WIDTHxHEIGHT in pixels, such as {model.side_px}x{model.side_px}"
        )
    width, height = (int(word) for word in words)
    cell, most = model.cell_px, AREA_MOST * model.side_px**2
    if width % cell or height % (cell * gang) or not 0 < width * height <= most:
        raise ScenarioError(
            f"--size {size}; with model {model.name!r} and a gang of {gang} the width must be a multiple of {cell}, "
            f"the height of {cell * gang}, with at most {most} pixels"
        )
    return width, height


def _require_whole(name: str, value: Any) -> None:
    """Raises ScenarioError unless a value is an integer; True and 2.0 are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScenarioError(f"{name} is {_shown(value)}; give a whole number")


def _require_text(name: str, value: Any) -> None:
    """Raises ScenarioError unless a value is Unicode text; a lone surrogate is none and fits into no file."""
    if not isinstance(value, str):
        raise ScenarioError(f"{name} is {_shown(value)}; give a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ScenarioError(
            f"{name} has a lone surrogate, {value[error.start]!a}, at character {error.start + 1}; give Unicode text"
        ) from None


def _shown(value: Any) -> str:
    """Returns the beginning of a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
