"""Environments with sites that are alike: zone, signals, GPUs and PUE of some sites are those of another one."""

from dataclasses import replace


def alike(environment, of_S):
    """The environment with zone, signals, GPU type and PUE of every site taken from the site at a position."""
    sites, signals = environment.fleet.sites, environment.signals
    made = tuple(
        site.model_copy(update={name: getattr(sites[of], name) for name in ("zone", "gpu_type", "pue")})
        for site, of in zip(sites, of_S, strict=True)
    )
    value_ZH = {name: value[list(of_S)] for name, value in signals.value_ZH.items()}
    return replace(
        environment,
        fleet=environment.fleet.model_copy(update={"sites": made}),
        signals=replace(signals, value_ZH=value_ZH),
    )
