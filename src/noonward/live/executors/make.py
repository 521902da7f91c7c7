"""Makes the executor that a configuration states for a site."""

from __future__ import annotations

from noonward.live.config import (
    CappedSite,
    KubernetesSite,
    LiveConfig,
    LocalSite,
    ModelSite,
    RaySite,
    SignalledSite,
    SlurmRestSite,
    SlurmSite,
)
from noonward.live.executors.identity import Users
from noonward.live.executors.kubernetes import KubernetesExecutor
from noonward.live.executors.local import LocalExecutor
from noonward.live.executors.model import ModelExecutor
from noonward.live.executors.protocol import Executor
from noonward.live.executors.ray_jobs import RayExecutor
from noonward.live.executors.running import PowerCaps, Stopping
from noonward.live.executors.slurm import SlurmExecutor
from noonward.live.executors.slurmrestd import SlurmRestExecutor
from noonward.live.executors.web import ClusterWeb
from noonward.live.shadow.executor import ShadowExecutor
from noonward.live.store.store import Store
from noonward.units import DAY_S


def make_executor(config: LiveConfig, name: str, store: Store, shadow: bool) -> Executor:
    """Returns the executor of a site.

    Args:
        config: Configuration.
        name: Name of the site.
        store: Store of the service.
        shadow: Run nothing: the executor ``model``; jobs of Slurm clusters are watched.

    Raises:
        ClusterError: A cluster's commands are missing.
        FileError: The certificate authorities cannot be read.
    """
    site = config.sites[name]
    if shadow and isinstance(site, SlurmSite):
        return ShadowExecutor(store, _slurm(site, config, store), name, store.now_s)
    if shadow or isinstance(site, ModelSite):
        return ModelExecutor(store.now_s)
    if isinstance(site, LocalSite):
        return LocalExecutor(
            config.folder / "jobs" / name,
            store.second_of,
            environment=config.environment,
            stopping=_stopping(site),
            power_caps=_power_caps(site),
        )
    if isinstance(site, KubernetesSite):
        return KubernetesExecutor(
            store.second_of,
            ClusterWeb(name, site.url, token_file=site.token_file, authorities=site.authorities),
            namespace=site.namespace,
            image=site.image,
            queue=site.queue,
            gpu_resource=site.gpu_resource,
            gpus_per_node=site.gpus_per_node,
            node_selector=site.node_selector,
            requests=site.requests,
            keep_ended_s=DAY_S * site.keep_ended_days,
            power_caps=_power_caps(site),
            as_user=site.as_user,
            users=Users(config.users),
        )
    if isinstance(site, RaySite):
        web = ClusterWeb(name, site.url, token_file=site.token_file)
        return RayExecutor(
            store.second_of,
            web,
            gpus_per_node=site.gpus_per_node,
            gpu_resource=site.gpu_resource,
            power_caps=_power_caps(site),
        )
    if isinstance(site, SlurmRestSite):
        return SlurmRestExecutor(
            store.second_of,
            _slurmrestd(name, site),
            partition=site.partition,
            fields=site.fields,
            gpus_per_node=site.gpus_per_node,
            time_limit_factor=site.time_limit_factor,
            container=site.container,
            stopping=_stopping(site),
            power_caps=_power_caps(site),
            user_token_file=site.user_token_file,
            users=Users(config.users),
        )
    return _slurm(site, config, store)


def _slurm(site: SlurmSite, config: LiveConfig, store: Store) -> SlurmExecutor:
    return SlurmExecutor(
        store.second_of,
        conf=site.conf,
        clusters=site.clusters,
        partition=site.partition,
        options=site.options,
        chdir=site.chdir,
        output=site.output,
        environment=config.environment,
        gpus_per_node=site.gpus_per_node,
        time_limit_factor=site.time_limit_factor,
        container=site.container,
        stopping=_stopping(site),
        suspend_by=site.suspend_by,
        power_caps=_power_caps(site),
        as_user=site.as_user,
        users=Users(config.users),
    )


def _stopping(site: SignalledSite) -> Stopping:
    return Stopping(signal=site.checkpoint_signal, grace_s=site.checkpoint_grace_s)


def _power_caps(site: CappedSite) -> PowerCaps | None:
    told = site.power_cap
    return None if told is None else PowerCaps(command=told.command, full_w=told.full_w)


def _slurmrestd(name: str, site: SlurmRestSite) -> ClusterWeb:
    if site.socket is not None:
        return ClusterWeb(name, "http://localhost", socket=site.socket)
    headers = {"X-SLURM-USER-NAME": str(site.user)}
    return ClusterWeb(
        name, str(site.url), token_file=site.token_file, headers=headers, token_header="X-SLURM-USER-TOKEN"
    )
