"""An edge scenario: servers, gang times, image tasks, quality and signals, as one YAML file."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from noonward.model.cluster.scenario import GeneratedSignals, SinusoidalSignals
from noonward.model.edge.quality import QualityLaw
from noonward.model.spec import Count, NonNegative, Positive, Share, Spec

MOST_SERVERS = 62
"""Servers of a gang are kept as the bits of one word."""


class GangTime(Spec):
    """How long a gang of one size takes."""

    load_s: NonNegative
    """Seconds to load a model on all its servers."""
    step_s: Positive
    """Seconds of one inference step."""


class EdgeServers(Spec):
    """Servers of one GPU each, all in one place."""

    count: Annotated[int, Field(ge=1, le=MOST_SERVERS)]
    """Number of servers."""
    zone: str = Field(min_length=1)
    """Zone of the electricity they use."""
    idle_w: NonNegative
    """Power of an idle server, W."""
    load_w: NonNegative
    """Power of a server while it loads a model, W."""
    active_w: NonNegative
    """Power of a server while it generates, W."""
    pue: Annotated[float, Field(ge=1)] = 1.0
    """Facility power over the servers' power."""


class PaperTasks(Spec):
    """The paper's arrivals: a first batch, then at most one task a tick at a constant rate (EAT, Sec. VI)."""

    source: Literal["paper"]
    count: Count = 32
    """Tasks of an episode."""
    first: Annotated[int, Field(ge=0)] = 10
    """Tasks that are queued at the start."""
    rate_per_s: Positive
    """Arrivals per second."""
    until_s: Positive = 1024.0
    """No task arrives later, s."""
    sizes: tuple[Count, ...] = Field(min_length=1)
    """Gang sizes, drawn uniformly."""


class EdgeScenario(Spec):
    """Servers, gang times, tasks, quality, signals and horizon of an edge setting."""

    kind: Literal["edge"]
    """``edge``."""
    name: str = Field(min_length=1)
    """Name."""
    description: str = ""
    """What the scenario is, in a sentence or two."""
    servers: EdgeServers
    """Servers."""
    gang_times: dict[int, GangTime] = Field(min_length=1)
    """Load and step times by gang size; there may be more sizes than tasks have."""
    tasks: PaperTasks
    """Image tasks."""
    visible: Count = 10
    """Tasks of the queue that can be seen and launched, the oldest first."""
    tick_s: Positive = 0.1
    """Length of a tick, s."""
    first_s: NonNegative = 1.0
    """First decision, s."""
    steps: Positive = 24.0
    """Inference steps that rules give every task, and that bounds are for."""
    steps_max: Positive = 30.0
    """Most inference steps of a task."""
    quality: QualityLaw = "monotone"
    """Law of quality by steps."""
    choice: Literal["lowest", "least-fragmentation"] = "lowest"
    """Servers of a new gang: the lowest-numbered idle ones, or those whose gangs are missed least."""
    end: Literal["drained", "limit"] = "drained"
    """When a run ends: when every task is launched and done, or at ``limit_s`` as in the reference."""
    limit_s: Positive = 1024.0
    """Last time at which a task is launched, s (``end: limit``)."""
    window_h: Count = 1
    """Hours over which idle servers are charged."""
    quality_min: Share = 0.0
    """Quality that an image should reach; images below it are counted."""
    signals: GeneratedSignals | SinusoidalSignals | None = Field(default=None, discriminator="source")
    """Price and carbon intensity; none: energy is reported, money and carbon are not."""
    carbon_usd_per_t: NonNegative = 0.0
    """Price of a tonne of CO2, USD."""
    reference_policy: str | None = None
    """Policy that comparisons are made against."""
    policies: tuple[str, ...] = ()
    """Policies that ``compare`` runs where none are named."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for size in self.gang_times:
            if not 1 <= size <= MOST_SERVERS:
                raise ValueError(f"gang_times has a gang of {size} servers; allowed: 1 to {MOST_SERVERS}")
        for size in self.tasks.sizes:
            if size not in self.gang_times:
                listed = ", ".join(map(str, sorted(self.gang_times)))
                raise ValueError(f"tasks.sizes has gangs of {size} servers, gang_times has {listed}; give its times")
            if size > self.servers.count:
                raise ValueError(f"tasks.sizes has gangs of {size} servers; allowed: 1 to {self.servers.count}")
        if self.tasks.rate_per_s * self.tick_s > 1:
            raise ValueError(
                f"tasks.rate_per_s is {self.tasks.rate_per_s:g}; at most one task a tick ({self.tick_s:g} s) arrives"
            )
        if self.steps > self.steps_max:
            raise ValueError(f"steps is {self.steps:g}, above steps_max {self.steps_max:g}")
        for name, value in (("first_s", self.first_s), ("limit_s", self.limit_s)):
            if value / self.tick_s > 2**53:
                raise ValueError(f"{name} is {value:g} s, too many ticks of {self.tick_s:g} s")
        return self

    @property
    def digest(self) -> str:
        """Digest of everything that a run depends on: all but the description and which policies are compared."""
        said = self.model_dump_json(exclude={"description", "reference_policy", "policies"})
        return hashlib.sha256(said.encode()).hexdigest()[:16]
