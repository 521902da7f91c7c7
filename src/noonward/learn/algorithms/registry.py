"""The algorithms by name; each is imported when it is asked for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

from noonward.errors import MissingExtraError, ScenarioError, nearest

ALGORITHMS: Final = {
    "masac": ("noonward.learn.algorithms.masac", "Masac", "MasacConfig"),
    "masac-credit": ("noonward.learn.algorithms.masac_credit", "MasacCredit", "MasacCreditConfig"),
    "madqn": ("noonward.learn.algorithms.madqn", "Madqn", "MadqnConfig"),
    "chsac-af": ("noonward.learn.algorithms.chsac", "Chsac", "ChsacConfig"),
    "chsac-af-published": ("noonward.learn.algorithms.chsac", "PublishedChsac", "PublishedConfig"),
    "eat": ("noonward.learn.algorithms.eat", "Eat", "EatConfig"),
    "eat-a": ("noonward.learn.algorithms.eat", "EatA", "AttentionlessConfig"),
    "eat-d": ("noonward.learn.algorithms.eat", "EatD", "DirectConfig"),
    "eat-da": ("noonward.learn.algorithms.eat", "EatDA", "PlainConfig"),
    "eat-published": ("noonward.learn.algorithms.eat", "EatPublished", "PublishedConfig"),
    "ppo": ("noonward.learn.algorithms.ppo", "Ppo", "PpoConfig"),
    "mappo": ("noonward.learn.algorithms.mappo", "Mappo", "MappoConfig"),
}
"""Module, class and settings by name."""


@dataclass(frozen=True)
class Entry:
    """An algorithm: its class and the dataclass of its settings."""

    make: Any
    config: type[Any]


def algorithm_named(name: str) -> Entry:
    """Returns an algorithm.

    Raises:
        ScenarioError: There is no such algorithm.
        MissingExtraError: torch, or tensorboard, is not installed.
    """
    if name not in ALGORITHMS:
        raise ScenarioError(f"unknown algorithm {name!r}; {nearest(name, ALGORITHMS)}")
    module, made, config = ALGORITHMS[name]
    try:
        importlib.import_module("tensorboard")
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in ("tensorboard", "torch"):
            raise
        raise MissingExtraError(error.name, "train") from error
    return Entry(getattr(found, made), getattr(found, config))
