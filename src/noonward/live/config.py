"""Configuration of a live service: a YAML file, checked whole before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from noonward.data.scenarios.load import explained, load_scenario
from noonward.data.vtn import require_https
from noonward.data.yaml_text import parse_yaml
from noonward.errors import ScenarioError, nearest
from noonward.live.demand.settings import EventSettings, MeterFeed, check_demand
from noonward.live.executors.identity import PLACE
from noonward.live.executors.running import Signal
from noonward.live.grid.feeds.settings import URL, SignalFeed, require_feeds
from noonward.model.cluster.scenario import Scenario
from noonward.model.spec import Gang, NonNegative, Positive, Spec


def _names_the_user(value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    """Returns a setting that says as whom jobs are submitted.

    Raises:
        ValueError: It does not say where the user's name goes.
    """
    if value and PLACE not in "".join(value):
        raise ValueError(f"write {PLACE} where the user's name goes, e.g. [sudo, -n, -u, '{PLACE}', --]")
    return value


S = TypeVar("S", bound=Spec)
OneUser = Annotated[str | None, AfterValidator(_names_the_user)]
UserWords = Annotated[tuple[str, ...], AfterValidator(_names_the_user)]


class PowerCapConfig(Spec):
    """A command that limits the power of a running job's GPUs, or takes the limit off."""

    command: tuple[str, ...] = Field(min_length=1)
    """Its words, with ``{watts}`` (limit per GPU), ``{share}``, ``{nodes}``, ``{job}`` (the cluster's name of it),
    ``{token}`` and ``{gpus}``, e.g. ``[clush, -w, "{nodes}", "nvidia-smi -pl {watts}"]``. It may be run twice."""
    full_w: Positive
    """Power limit of a GPU without a cap, W."""

    @field_validator("command")
    @classmethod
    def _fillable(cls, told: tuple[str, ...]) -> tuple[str, ...]:
        """Refuses words that name something else."""
        known = dict.fromkeys(("watts", "share", "nodes", "job", "token", "gpus"), "")
        for word in told:
            try:
                word.format(**known)
            except (KeyError, IndexError, ValueError) as error:
                raise ValueError(f"{word!r} names {error}; known are {', '.join(known)}, in braces") from error
        return told


class CappedSite(Spec):
    """A site at which the power of running jobs may be limited."""

    power_cap: PowerCapConfig | None = None
    """How it is limited; none: it is not, and policies that cap jobs are refused."""


class SignalledSite(CappedSite):
    """A site whose running jobs may be told to write a checkpoint before they are stopped."""

    checkpoint_signal: Signal | None = None
    """Signal upon which commands write a checkpoint, such as USR1; none: they are told nothing, and what they did since
    their last checkpoint is lost."""
    checkpoint_grace_s: NonNegative = 120.0
    """How long they may take for that before they are stopped, s; one that ends with exit code 85 is stopped at once.
    """


class LocalSite(SignalledSite):
    """Jobs are processes of the machine that the service runs on."""

    executor: Literal["local"]
    """``local``."""


class ModelSite(Spec):
    """Nothing runs: a job ends after the run time that the model expects."""

    executor: Literal["model"]
    """``model``: dry run and shadow."""


class SlurmSite(SignalledSite):
    """A Slurm cluster, by its command line."""

    executor: Literal["slurm"]
    """``slurm``."""
    conf: Path | None = None
    """The cluster's ``slurm.conf``; none: as the environment says."""
    clusters: str | None = None
    """Value of ``--clusters``."""
    partition: str | None = None
    """Partition."""
    options: tuple[str, ...] = ()
    """Further options of sbatch."""
    chdir: Path | None = None
    """Folder in which jobs run; none: the home of the service's user, or /tmp where it has none."""
    output: str | None = None
    """File for what a job prints, as sbatch takes it; none: ``TOKEN.out`` in that folder."""
    gpus_per_node: Gang = 8
    """GPUs of a node."""
    time_limit_factor: Positive | None = None
    """Time limit over the expected run time, of jobs that state none; none: the partition's."""
    container: tuple[str, ...] = ()
    """Words of the command that runs a container image, e.g. ``[apptainer, exec, --nv]``; none: jobs that name an image
    do not run there."""
    suspend_by: Literal["requeue", "pause"] = "requeue"
    """``requeue``: a suspended job is put back into Slurm's queue, held, and its GPUs are free for others. ``pause``:
    ``scontrol suspend``, which stops its processes and frees no GPUs; it needs a Slurm operator's rights."""
    as_user: UserWords = ()
    """Words before sbatch, scontrol and scancel that run them as a job's own user, e.g. ``[sudo, -n, -u, "{user}",
    --]``; none: all jobs are of the service's user."""


class SlurmRestSite(SignalledSite):
    """A Slurm cluster, by slurmrestd."""

    executor: Literal["slurmrestd"]
    """``slurmrestd``."""
    socket: Path | None = None
    """Its Unix socket (``rest_auth/local``); the jobs are those of the service's user."""
    url: str | None = Field(default=None, pattern=URL)
    """Its address (``rest_auth/jwt``)."""
    user: str | None = None
    """User that the token is of."""
    token_file: Path | None = None
    """File with the token."""
    partition: str | None = None
    """Partition."""
    fields: dict[str, str | int | bool] = Field(default_factory=dict)
    """Further fields of a submission, as slurmrestd names them."""
    gpus_per_node: Gang = 8
    """GPUs of a node."""
    time_limit_factor: Positive | None = None
    """Time limit over the expected run time, of jobs that state none; none: the partition's."""
    container: tuple[str, ...] = ()
    """Words of the command that runs a container image; none: jobs that name an image do not run there."""
    user_token_file: OneUser = None
    """File with the token of a job's own user, ``{user}`` in its path, with ``url``; none: all jobs are of ``user``."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.socket is None) == (self.url is None):
            raise ValueError("give either socket or url")
        if self.url is not None and (self.user is None or self.token_file is None):
            raise ValueError("url needs user and token_file")
        if self.url is None and self.user_token_file is not None:
            raise ValueError("user_token_file goes with url; by a socket all jobs are of the service's user")
        return self


class KubernetesSite(CappedSite):
    """A namespace of a Kubernetes cluster."""

    executor: Literal["kubernetes"]
    """``kubernetes``."""
    url: str = Field(pattern=URL)
    """Address of the API server."""
    token_file: Path | None = None
    """File with the token of a service account; read again for every call."""
    authorities: Path | None = None
    """PEM file of the cluster's certificate authorities; none: those of the machine."""
    namespace: str = "default"
    """Namespace."""
    image: str
    """Container image that commands run in."""
    queue: str | None = None
    """Local queue of Kueue; none: Kueue is not used."""
    gpu_resource: str = "nvidia.com/gpu"
    """Name of the GPUs as a resource."""
    gpus_per_node: Gang = 8
    """GPUs of a node; a larger gang is a JobSet."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that are used."""
    requests: dict[str, str] = Field(default_factory=dict)
    """Further resources of each container, e.g. ``memory: 16Gi``."""
    keep_ended_days: Annotated[float, Field(ge=1)] = 7.0
    """Days for which the cluster keeps the objects of jobs that have ended, and their output; it deletes them then."""
    as_user: OneUser = None
    """User as whom a job's objects are made, ``{user}`` in it, e.g. ``oidc:{user}`` (impersonation); none: the
    service's account."""


class RaySite(CappedSite):
    """A Ray cluster, by its jobs interface."""

    executor: Literal["ray"]
    """``ray``."""
    url: str = Field(pattern=URL)
    """Address of its dashboard."""
    token_file: Path | None = None
    """File with a bearer token."""
    gpus_per_node: Gang = 8
    """GPUs of a node; a larger gang reserves its GPUs itself."""
    gpu_resource: str | None = None
    """Name of the GPUs as a custom resource; none: Ray's own."""


class LogConfig(Spec):
    """What is logged, to standard error."""

    format: Literal["text", "json"] = "text"
    """Lines of text, or a JSON object per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is shown."""
    requests: bool = False
    """Whether every request is a line."""


class ShadowConfig(Spec):
    """How jobs of a cluster that is watched in shadow are taken."""

    run_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """How long a job is expected to run, as a share of its time limit."""
    run_hours: Positive | None = None
    """How long jobs without a time limit are expected to run, h; none: they are left out."""
    class_: str | None = Field(default=None, alias="class")
    """Class of the fleet that the jobs are of; may be left out where there is one."""


SiteConfig = Annotated[
    LocalSite | ModelSite | SlurmSite | SlurmRestSite | KubernetesSite | RaySite, Field(discriminator="executor")
]
OWN_MACHINE = ("local", "model")
"""Executors that reach no cluster."""


class WebhookConfig(Spec):
    """An address that is told which jobs have ended."""

    url: str = Field(pattern=URL)
    """Address that a JSON object is posted to."""
    states: tuple[Literal["done", "failed", "cancelled", "overdue", "lost"], ...] = Field(
        default=("failed", "overdue", "lost"), min_length=1
    )
    """Ends that are told."""
    token_file: Path | None = None
    """File with a token alone, which is sent as ``Authorization: Bearer``; with HTTPS, or on this machine, alone."""

    @model_validator(mode="after")
    def _token_stays_secret(self) -> Self:
        if self.token_file is not None:
            try:
                require_https(self.url)
            except ScenarioError as error:
                raise ValueError(
                    f"a token is sent over HTTPS alone: {self.url}; give another url or no token_file"
                ) from error
        return self


class LiveConfig(Spec):
    """What a service runs: sites and their executors, policy, address and folder."""

    scenario: str
    """Packaged scenario, or path of a YAML file: fleet, network, signals, economics, protocol, slot."""
    policy: str
    """Policy that decides (``noonward policies``)."""
    folder: Path = Path("noonward-live")
    """Folder of the store and of local jobs."""
    database: str | None = Field(default=None, pattern=r"^postgres(ql)?://")
    """PostgreSQL that holds the store, ``postgresql://USER@HOST/NAME``, for more than one instance; none: a file in
    the folder."""
    sites: dict[str, SiteConfig]
    """Executor of every site of the fleet."""
    history: Path | None = None
    """Dated table of jobs or job log, from which policies that plan draw the jobs to come; none: the service's own
    past arrivals."""
    signals: tuple[SignalFeed, ...] = ()
    """Publishers that are asked for prices and intensities; none: the scenario's signals."""
    meters: dict[str, MeterFeed] = Field(default_factory=dict)
    """Where the power of sites is measured; of the others, what the service's books say is taken."""
    events: EventSettings | None = None
    """Where grid events come from; ``{}``: from operators alone. None: there are none."""
    webhook: WebhookConfig | None = None
    """What is told which jobs have ended; none: nothing is. In shadow nothing is told."""
    host: str = "127.0.0.1"
    """Address to listen at; another than the machine's own needs tokens."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8470
    """Port; 0: any that is free."""
    tls_certificate: Path | None = None
    """Certificate file (PEM), with ``tls_key``."""
    tls_key: Path | None = None
    """Key file (PEM)."""
    shadow: ShadowConfig = ShadowConfig()
    """How jobs of clusters that are watched in shadow are taken."""
    log: LogConfig = LogConfig()
    """What is logged."""
    environment: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    """Variables of the service's environment that jobs of Slurm and local sites get beside PATH, HOME and the like."""
    users: dict[str, str] = Field(default_factory=dict)
    """Users at the clusters by the names of tokens, for sites that submit jobs as their owners (``as_user``,
    ``user_token_file``); a token that is not named has the user of its own name."""
    without_tokens: bool = False
    """Whether it runs jobs at clusters though it has no tokens: whoever uses its machine is then administrator."""
    largest_gang: Gang = 64
    """Largest gang that a job may ask for, GPUs."""
    requests_per_s: Positive | None = 1000.0
    """Requests per second that each token may make on average; none: any number."""
    jobs_per_s: Positive | None = None
    """Jobs per second that each token may submit on average; none: any number."""
    poll_s: Positive = 5.0
    """How often clusters are asked, s."""
    retention_days: Annotated[float, Field(ge=60)] = 400.0
    """Days for which jobs that have ended are kept, with all that is known of them."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of a policy that draws."""

    @model_validator(mode="after")
    def _no_local_jobs_of_several_machines(self) -> Self:
        local = [name for name, site in self.sites.items() if site.executor == "local"]
        if self.database is not None and local:
            raise ValueError(
                f"site {local[0]} runs jobs as processes of one machine, which another instance over the same database "
                "could not follow; give it a cluster, or leave database out"
            )
        return self

    @model_validator(mode="after")
    def _both_tls_files(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together; give both or neither")
        return self


def load_config(path: Path) -> tuple[LiveConfig, Scenario]:
    """Returns the configuration in a file, and its scenario.

    Raises:
        ScenarioError: The file is missing or wrong; the message names file, key, value and what is allowed.
    """
    if not path.exists():
        raise ScenarioError(f"configuration {path} does not exist; check the path")
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error.strerror}); check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from error
    if not isinstance(content, dict):
        raise ScenarioError(f"{path} holds no mapping; docs/live.md shows a configuration")
    if "scenario" not in content and "fleet" in content:
        raise ScenarioError(
            f"{path} is a scenario, not a configuration of the live service; write one that names it, e.g. live.yaml "
            f"with 'scenario: {path.name}', 'policy:' and an executor per site, and serve that (docs/live.md, A "
            "configuration)"
        )
    return checked_config(content, str(path), path.parent)


def checked_config(content: dict[str, Any], source: str, base: Path) -> tuple[LiveConfig, Scenario]:
    """Returns a configuration and its scenario.

    Args:
        content: What the file holds.
        source: Its name, for messages.
        base: Folder that relative paths start from.

    Raises:
        ScenarioError: As ``load_config``.
    """
    try:
        config = LiveConfig.model_validate(content)
    except ValidationError as error:
        raise ScenarioError(explained(error, source, content, LiveConfig, "configuration")) from error
    named = config.scenario
    scenario = load_scenario(base / named if named.endswith((".yaml", ".yml")) else named)
    if not isinstance(scenario, Scenario):
        raise ScenarioError(f"{source}: the live service runs scenarios of kind cluster; {named} is of {scenario.kind}")
    names = scenario.fleet.site_names
    for site in config.sites:
        if site not in names:
            raise ScenarioError(f"{source}: sites names the unknown site {site!r}; {nearest(site, names)}")
    missing = [site for site in names if site not in config.sites]
    if missing:
        raise ScenarioError(f"{source}: sites lacks {', '.join(missing)}; give every site of the fleet an executor")
    require_feeds(config.signals, tuple(dict.fromkeys(site.zone for site in scenario.fleet.sites)), source)
    check_demand(scenario, config.events, config.meters, source)
    feeds = tuple(
        feed if feed.key_file is None else feed.model_copy(update={"key_file": base / feed.key_file})
        for feed in config.signals
    )
    relative = ("folder", "history", "tls_certificate", "tls_key")
    paths = {name: base / value for name in relative if (value := getattr(config, name))}
    meters = {site: _from_folder(feed, base, "path", "key_file") for site, feed in config.meters.items()}
    events = None if config.events is None else _from_folder(config.events, base, "path", "secret_file")
    return config.model_copy(update=paths | {"signals": feeds, "meters": meters, "events": events}), scenario


def _from_folder(settings: S, base: Path, *names: str) -> S:
    """Returns settings whose relative paths start from a folder."""
    return settings.model_copy(update={name: base / path for name in names if (path := getattr(settings, name))})
