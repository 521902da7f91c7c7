"""Metrics: named values with unit and interval, the flat list that ``--json`` prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from noonward.evaluate.statistics import Estimate


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
    """Returns one JSON object whose ``figures`` is the list."""
    return json.dumps({**more, "figures": [asdict(metric) for metric in metrics]}, indent=1, allow_nan=False)
