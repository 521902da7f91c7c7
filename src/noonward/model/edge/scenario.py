"""An edge scenario: servers, gang times, image tasks, quality and signals, as one YAML file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from noonward.model.cluster.scenario import GeneratedSignals, SinusoidalSignals
from noonward.model.edge.quality import STEPS_HIGH, QualityLaw, quality
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


class ModelLaw(Spec):
    """Which models tasks ask for: the k-th most wanted with a share in proportion to ``(k + shift) ** -exponent``.

    The defaults of exponent and shift are fitted on a trace of real requests (Zipf-Mandelbrot; docs/edge-inference.md).
    """

    count: Count = 1
    """Models."""
    exponent: NonNegative = 2.49
    """How fast the shares fall."""
    shift: NonNegative = 3.43
    """How flat they begin."""


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
    """Numbers of servers per task, drawn uniformly."""
    models: ModelLaw = ModelLaw()
    """Models, drawn for each task by itself."""
    load_sigma: NonNegative = 0.0
    """Spread of load times: standard deviation of their logarithm; their mean stays that of the gang (EAT, Fig. 6)."""
    deadline_s: Positive | None = None
    """Seconds after its submission by which an image was promised; none: no promise."""


class SessionTasks(Spec):
    """Requests as in a real trace: users come in sessions and ask for the same model and gang again and again.

    The laws' numbers are packaged (``noonward/data/tables/image_requests.json``); ``tools/fit_image_requests.py`` fits
    them (docs/edge-inference.md).
    """

    source: Literal["sessions"]
    rate_per_s: Positive = 0.0135
    """Requests per second, on average over a day."""
    start_hour: Annotated[float, Field(ge=0, lt=24)] = 0.0
    """Hour of the trace's (anonymous) day at second 0; shares of the day by hour follow the trace."""
    hours: Positive = 24.0
    """Hours in which sessions begin; no request is later."""
    sizes: tuple[Count, ...] = Field(min_length=1)
    """Gang sizes; a request for more images than the largest gets the largest."""
    loads: Literal["measured", "gang"] = "measured"
    """Load times: drawn from the trace's (warm or cold model, adapters on top), or those of the gang."""
    deadline_s: Positive | None = None
    """Seconds after its submission by which an image was promised; none: no promise."""


class TraceTasks(Spec):
    """Requests of a file (docs/edge-inference.md says which columns it has)."""

    source: Literal["trace"]
    path: Path
    """File (.parquet or .csv)."""
    hours: Positive = 2.0
    """Hours of the trace in one environment; environment n is the n-th such window with enough requests."""
    least: Count = 16
    """Fewest requests of a window."""
    time_scale: Positive = 1.0
    """Factor on the times between requests; below 1 they come faster."""
    sizes: tuple[Count, ...] = Field(min_length=1)
    """Gang sizes; a request for more images than the largest gets the largest."""
    loads: Literal["measured", "gang"] = "measured"
    """Load times: drawn from the trace's distributions, or those of the gang."""
    deadline_s: Positive | None = None
    """Seconds after its submission by which an image was promised; none: no promise."""


class Utility(Spec):
    """Weights of an image's utility, ``quality x q - response_per_s x response - penalty`` (EAT, Eq. 4a).

    The penalty applies to images below ``quality_min``. The reward of a launch has the reciprocal of response and queue
    in place of the response (EAT, Sec. V.A.4).
    """

    quality: NonNegative = 10.0
    """Weight of the quality (alpha)."""
    response_per_s: NonNegative = 0.004
    """Weight of a second of response (beta)."""
    queue_per_s: NonNegative = 0.004
    """Weight of a second of the queue's mean wait in the reward (mu)."""
    penalty: NonNegative = 1.0
    """Penalty of an image below the quality it should reach (lambda)."""


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
    tasks: PaperTasks | SessionTasks | TraceTasks = Field(discriminator="source")
    """Image tasks."""
    visible: Count = 10
    """Tasks of the queue that can be seen and launched, the oldest first."""
    tick_s: Positive = 0.1
    """Length of a tick, s."""
    first_s: NonNegative = 1.0
    """First decision, s."""
    steps: Positive = 24.0
    """Inference steps that rules give every task, and that bounds are for."""
    steps_min: NonNegative = 0.0
    """Fewest inference steps of a task; one that may have fewer gets its most."""
    steps_max: Positive = 30.0
    """Most inference steps of a task."""
    quality: QualityLaw = "monotone"
    """Quality by steps."""
    choice: Literal["lowest", "least-fragmentation"] = "lowest"
    """Servers of a new gang: the lowest-numbered idle ones, or those whose gangs are missed least."""
    end: Literal["drained", "limit"] = "drained"
    """When a run ends: when every task is launched and done, or at ``limit_s`` as in the reference."""
    limit_s: Positive = 1024.0
    """Last time at which a task is launched, s (``end: limit``)."""
    window_h: Count = 1
    """Hours over which idle servers are charged."""
    quality_min: Share = 0.0
    """Quality that an image should reach; images below it are counted, and cost the utility's penalty."""
    quality_goal: Share = 0.0
    """Mean quality that a policy must reach to be adopted; 0: no goal."""
    utility: Utility = Utility()
    """Weights of the utility of an image."""
    signals: GeneratedSignals | SinusoidalSignals | None = Field(default=None, discriminator="source")
    """Price and carbon intensity; none: energy is reported, money and carbon are not."""
    carbon_usd_per_t: NonNegative = 0.0
    """Price of a tonne of CO2, USD."""
    baseline: str | None = None
    """Policy that comparisons are made against."""
    policies: tuple[str, ...] = ()
    """Policies that ``compare`` runs if none are named."""

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
        if isinstance(self.tasks, PaperTasks) and self.tasks.rate_per_s * self.tick_s > 1:
            raise ValueError(
                f"tasks.rate_per_s is {self.tasks.rate_per_s:g}; at most one task a tick ({self.tick_s:g} s) arrives"
            )
        if not self.steps_min <= self.steps <= self.steps_max:
            raise ValueError(f"steps is {self.steps:g}; allowed: {self.steps_min:g} (steps_min) to {self.steps_max:g}")
        highest = quality(min(self.steps_max, STEPS_HIGH), 0)
        if self.quality_goal > highest:
            raise ValueError(
                f"quality_goal is {self.quality_goal:g}; {self.steps_max:g} steps (steps_max) reach {highest:.3f}"
            )
        for name, value in (("first_s", self.first_s), ("limit_s", self.limit_s)):
            if value / self.tick_s > 2**53:
                raise ValueError(f"{name} is {value:g} s, too many ticks of {self.tick_s:g} s")
        return self

    @property
    def digest(self) -> str:
        """Digest of everything that a run depends on: all but the description and which policies are compared."""
        said = self.model_dump_json(exclude={"description", "baseline", "policies"})
        return hashlib.sha256(said.encode()).hexdigest()[:16]
