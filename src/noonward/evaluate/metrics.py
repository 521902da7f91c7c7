"""Metrics: named values with unit and interval, the flat list that ``--json`` prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from noonward.evaluate.statistics import Estimate

FORMER: Final = {"improvement_share": "gap_closed", "optimality_gap": "duality_gap"}
"""Quantities by their names and the names that they had before, which are printed, too."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A named value.

    Attributes:
        name: Stable name, ``quantity/policy``.
        value: Value, or None where it is not defined.
        unit: Unit.
        low: Lower end of the 95% interval, or None.
        high: Upper end, or None.
        reference: The paper's or a peer's value, or None.
    """

    name: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    reference: float | None = None

    @classmethod
    def of(cls, name: str, estimate: Estimate | float, unit: str, reference: float | None = None) -> Metric:
        """Returns a metric from an estimate or a plain value."""
        if not isinstance(estimate, Estimate):
            estimate = Estimate(float(estimate))
        value = None if math.isnan(estimate.value) else estimate.value
        return cls(name=name, value=value, unit=unit, low=estimate.low, high=estimate.high, reference=reference)


def to_json(metrics: Iterable[Metric], **more: Any) -> str:
    """Returns one JSON object whose ``figures`` is the list, those with a former name under both names."""
    listed = list(metrics)
    former = [replace(metric, name=_former(metric.name)) for metric in listed if _former(metric.name) != metric.name]
    return json.dumps({**more, "figures": [asdict(metric) for metric in (*listed, *former)]}, indent=1, allow_nan=False)


def _former(name: str) -> str:
    """Returns the former name of a metric, or its name if it has had no other."""
    for new, old in FORMER.items():
        name = name.replace(new, old)
    return name
