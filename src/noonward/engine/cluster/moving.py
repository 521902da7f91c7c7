"""What changes in a world while it runs: taken out of it for a state, and put into a world of the same run again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.decision.cluster.assembly import with_slots
from noonward.engine.cluster.kernels.world import PARTS, WORLD_PARTS, World, arrays_of
from noonward.paging import zero_rows

Arrays = dict[str, NDArray[Any]]
MOVING: Final = tuple(part.name for part in PARTS if part.moves)
"""Arrays of a world that change while it runs."""
GROWING: Final = ("heap_E", *(part.name for part in PARTS if {"slots", "lives", "segments"} & set(part.axes)))
"""Arrays of a world that grow while it runs."""
OWN_GROWING: Final = tuple(part.name for part in WORLD_PARTS if part.name in GROWING)
"""Those of them that are not part of the view."""
PROVIDED: Final = ("forecast_KISL", "issued_2")
"""Arrays that are provided as a run needs them: forecasts are issued again."""


def moving(world: World) -> Arrays:
    """Returns the arrays of a world that change while it runs, by name (live)."""
    arrays = arrays_of(world)
    return {name: arrays[name] for name in MOVING}


def with_moving(world: World, kept: Mapping[str, NDArray[Any]]) -> World:
    """Returns a world that is where another one of the same run was.

    Args:
        world: World of the run; arrays that do not grow are written to.
        kept: What ``moving`` returned of the other one.
    """
    grown: dict[str, Any] = {name: zero_rows(len(kept[name]), kept[name].dtype) for name in OWN_GROWING}
    world = world._replace(shown=with_slots(world.shown, len(grown["track_J"])), **grown)
    arrays = arrays_of(world)
    for name in MOVING:
        arrays[name][:] = kept[name]
    return world


def packed(world: World) -> Arrays:
    """Returns what ``moving`` does without the room that is not used yet (live): what a run holds so far."""
    kept, engine = moving(world), world.engine_1[0]
    heap_E, segment_K = kept["heap_E"], kept["segment_K"]
    return kept | {
        "outcome_R": kept["outcome_R"][: engine["next_arrival"]],
        "heap_E": heap_E[: engine["heap_size"]],
        "journey_E": heap_E[len(heap_E) - engine["journeys"] :],
        "segment_K": segment_K[: engine["segments"]],
        "room_2": np.array([len(heap_E), len(segment_K)]),
    }


def unpacked(kept: Mapping[str, NDArray[Any]], jobs: int) -> Arrays:
    """Returns what ``moving`` returned where ``packed`` returned this.

    Args:
        kept: What ``packed`` returned.
        jobs: Jobs of the run.
    """
    events, segments = kept["room_2"].tolist()
    heap_E = _lengthened(kept["heap_E"], events)
    heap_E[events - len(kept["journey_E"]) :] = kept["journey_E"]
    return {name: kept[name] for name in MOVING} | {
        "outcome_R": _lengthened(kept["outcome_R"], jobs),
        "heap_E": heap_E,
        "segment_K": _lengthened(kept["segment_K"], segments),
    }


def _lengthened(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Returns an array with zeros behind."""
    out = zero_rows(length, array.dtype)
    out[: len(array)] = array
    return out
