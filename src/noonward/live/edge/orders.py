"""What the controller and its workers send each other, and the settings and time limits of a service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from noonward.errors import ScenarioError

Parallelism = Literal["synchronous", "displaced"]
"""How a gang's workers exchange keys and values: at once, or those of the step before (DistriFusion)."""
LoadPolicy = Literal["keep", "reload-on-regroup"]
"""Whether a worker keeps its model when its gang is dissolved, or loads it again for every new gang, as in EAT."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How images are generated.

    Attributes:
        parallelism: Exchange of keys and values within a gang.
        warm_up: First steps of ``displaced`` that exchange at once.
        guidance: Scale of classifier-free guidance, 1 for none; None: 4.5 with a text encoder, 1 without.
        precision: Type of weights and activations.
    """

    parallelism: Parallelism = "synchronous"
    warm_up: int = 4
    guidance: float | None = None
    precision: Literal["float32", "bfloat16", "float16"] = "float32"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long the service waits for what may never come, s.

    Attributes:
        beat_s: Time between two health checks of a worker.
        lease_s: A worker that neither answers nor uses CPU time is killed at half of it, counted from its last sign of
            life, and the other members of its gang are free, or killed too, at its end. Above twice ``beat_s``.
        start_s: A worker that is not ready after so long, and has used no CPU time for as long, is killed.
        load_s: Least time that loading a model may take; ten times the expected load if that is more.
        group_s: Least time-out of a gang's exchanges; ten times the expected step if that is more.
        join_s: Time-out of forming a gang.
        task_s: Least time that a gang may go without a new step; ten times the expected run if that is more.
        starts: Starts of a worker that may fail one after the other before it is given up.
    """

    beat_s: float = 1.0
    lease_s: float = 8.0
    start_s: float = 300.0
    load_s: float = 300.0
    group_s: float = 60.0
    join_s: float = 30.0
    task_s: float = 120.0
    starts: int = 3

    def __post_init__(self) -> None:
        if self.lease_s <= 2 * self.beat_s:
            raise ScenarioError(
                f"the lease is {self.lease_s:g} s; it must be above {2 * self.beat_s:g} s, twice the time between two "
                "health checks"
            )


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One image of an order.

    Attributes:
        task: Id of the task.
        prompt: What to draw.
        negative: What not to draw, with guidance.
        seed: Seed of the first noise.
    """

    task: str
    prompt: str
    negative: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Order:
    """Images for a gang, all drawn at once.

    Attributes:
        attempt: Number of the attempt, by which it is stopped.
        group: Number of the gang's process group, which members keep until they are given another one.
        pictures: The images, one or more.
        steps: Inference steps.
        drawing: How images are generated.
        sides_px: Width and height of the images, pixels; None: the model's own.
        size: Workers of the gang.
        address: Host and port where the gang meets; None for a gang of one and for a group that stands.
        join_s: Time-out of forming the gang, s.
        group_s: Time-out of an exchange, s.
    """

    attempt: int
    group: int
    pictures: tuple[Picture, ...]
    steps: int
    drawing: Drawing
    sides_px: tuple[int, int] | None
    size: int
    address: tuple[str, int] | None
    join_s: float
    group_s: float


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a member of a gang returns.

    Attributes:
        join_s: Seconds to form the gang.
        prompt_s: Seconds to encode the prompts (first member).
        run_s: Seconds of all inference steps.
        decode_s: Seconds from the latents to the PNG files (first member).
        sent_bytes: Bytes of keys and values that it sent.
        pngs: The images (first member; none at the others).
    """

    join_s: float
    prompt_s: float
    run_s: float
    decode_s: float
    sent_bytes: int
    pngs: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a model has drawn.

    Attributes:
        prompt_s: Seconds to encode the prompts (first member).
        run_s: Seconds of all inference steps; of everything where a model does not tell them apart.
        decode_s: Seconds from the latents to the PNG files (first member).
        sent_bytes: Bytes of keys and values that this member sent, 0 where they are not counted.
        pngs: The images (first member; none at the others).
    """

    prompt_s: float
    run_s: float
    decode_s: float
    sent_bytes: int
    pngs: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a worker is.

    Attributes:
        pid: Its process.
        host: Address at which other workers reach it.
        node: Ray's id of its machine.
        device: ``cpu``, or the GPU's name.
    """

    pid: int
    host: str
    node: str
    device: str


@dataclass(frozen=True, kw_only=True)
class Beat:
    """A worker's answer to a health check.

    Attributes:
        attempt: Attempt it works at, 0 if none.
        step: Inference steps done of it.
        rss_mb: Memory of its process, MB.
        descriptors: Open files and connections.
        groups: Open process groups, 1 while its gang stays.
        model: Folder of the model that it has loaded, empty if none.
    """

    attempt: int
    step: int
    rss_mb: float
    descriptors: int
    groups: int
    model: str
