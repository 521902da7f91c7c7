"""Layout of array records: one table of names, element types and axes, from which all else derives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noonward.decision.cluster.view import ANSWER, LIFE, LINK, RUN, SITE
from noonward.model.cluster.freedom import FREEDOM
from noonward.model.cluster.jobs import JOB

COUNTED: Final = {"one": 1, "two": 2}
"""Axes of fixed length."""


class Part(NamedTuple):
    """One array of a state.

    Attributes:
        name: Its name.
        dtype: Element type.
        axes: Names of its axes; arrays that share a name share the length.
        moves: Whether it changes during a run.
        fill: Value of every entry at first; records are zero.
    """

    name: str
    dtype: Any
    axes: tuple[str, ...]
    moves: bool = False
    fill: float = 0


VIEW_PARTS: Final = (
    Part("run_1", RUN, ("one",), moves=True),
    Part("site_S", SITE, ("sites",), moves=True),
    Part("job_J", JOB, ("slots",), moves=True),
    Part("asked_N", np.int64, ("askers",), moves=True, fill=-1),
    Part("mask_NA", np.uint8, ("askers", "choices"), moves=True),
    Part("link_IS", LINK, ("ingress", "sites")),
    Part("link_free_IS", np.float64, ("ingress", "sites"), moves=True),
    Part("home_I", np.int64, ("ingress",), fill=-1),
    Part("range_CS", np.uint8, ("classes", "sites"), fill=1),
    Part("forecast_KSL", np.float64, ("two", "sites", "leads"), moves=True, fill=np.nan),
    Part("speed_KSCGF", np.float64, ("two", "sites", "classes", "gangs", "levels"), fill=np.nan),
    Part("oracle_SCG", np.int64, ("sites", "classes", "gangs")),
    Part("clock_SF", np.float64, ("sites", "levels"), fill=np.nan),
    Part("freedom_C", FREEDOM, ("classes",)),
    Part("life_J", LIFE, ("lives",), moves=True),
)
"""The arrays of a ``ClusterView``, in its order."""
ANSWER_PARTS: Final = (
    Part("answer_N", ANSWER, ("askers",), moves=True),
    Part("limit_SH", np.float64, ("sites", "limit_hours")),
)
"""The arrays of ``Answers``, in its order."""
MEMORY_PARTS: Final = (
    Part("number_P", np.float64, ("numbers",)),
    Part("table_XY", np.float64, ("table_rows", "table_columns")),
    Part("index_XY", np.int64, ("index_rows", "index_columns")),
    Part("random_1", np.uint64, ("one",)),
    Part("weight_W", np.float32, ("weights",)),
    Part("scratch_XY", np.float32, ("scratch_rows", "scratch_columns")),
    Part("new_number_P", np.float64, ("job_numbers",)),
    Part("new_index_P", np.int64, ("job_indices",)),
    Part("serial_J", np.int64, ("remembered",), fill=-1),
    Part("job_number_JP", np.float64, ("remembered", "job_numbers")),
    Part("job_index_JP", np.int64, ("remembered", "job_indices")),
)
"""The arrays of a ``RuleMemory``, in its order; all change as the rule says."""


def blank(parts: Iterable[Part], **lengths: int) -> dict[str, NDArray[Any]]:
    """Returns the arrays of some parts, filled with their first values.

    Args:
        parts: Parts.
        lengths: Length of each axis by name; 1 where it is not given.
    """
    known: Mapping[str, int] = COUNTED | lengths
    made = {}
    for part in parts:
        shape = tuple(known.get(axis, 1) for axis in part.axes)
        made[part.name] = np.zeros(shape, part.dtype) if not part.fill else np.full(shape, part.fill, part.dtype)
    return made
