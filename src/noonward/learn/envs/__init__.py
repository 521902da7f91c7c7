"""Environments for outside libraries. Importing this registers the Gymnasium ids.

``gymnasium.make("noonward.learn.envs:noonward/DvfsTraining-v0")`` imports it by itself: Gymnasium has had no entry
points for other packages' environments since its version 1.0.
"""

from __future__ import annotations

from typing import Any, Final

from noonward.decision.cluster.observation import Observation
from noonward.errors import MissingExtraError

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "gymnasium", "train") from error

_DISPATCHER: Final = "noonward.learn.envs.dispatcher_env:DispatcherEnv"
_IDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "noonward/DvfsTraining-v0": (_DISPATCHER, {}),
    "noonward/FineTuning-v0": (
        _DISPATCHER,
        {
            "scenario": "fine-tuning",
            "settings": ("protocol=on-arrival",),
            "observation": Observation(kind="extended", protocol="on-arrival", gpus_max=16, signals=True),
            "reward": "utility",
        },
    ),
    "noonward/EdgeInference-v0": ("noonward.learn.envs.edge_env:EdgeEnv", {}),
}
for _name, (_entry, _options) in _IDS.items():
    gymnasium.register(_name, _entry, kwargs=_options)

IDS: Final = tuple(_IDS)
"""The ids."""
