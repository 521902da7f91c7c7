"""Lines that the ledger keeps per site (meters, grid events, carbon books) under every policy, as cells and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from noonward.arrays import F8
from noonward.evaluate.comparison import Comparison
from noonward.evaluate.metrics import Metric
from noonward.evaluate.statistics import mean, ratio
from noonward.evaluate.table import TextTable, number
from noonward.ledger.units import unit_of


@dataclass(frozen=True)
class SiteLines:
    """One kind of lines per site.

    Attributes:
        field: Field of the ledger that holds them: a dataclass of lines by site.
        type: That dataclass.
        prefix: What the names of their metrics begin with.
        none: Lines of a site in an environment in which it has none; not needed where all environments have the same.
    """

    field: str
    type: Any
    prefix: str
    none: Any = None

    def sites(self, comparison: Comparison) -> tuple[str, ...]:
        """Returns the sites that have such lines in any environment."""
        records = comparison.records[comparison.reference]
        return tuple(dict.fromkeys(site for record in records for site in getattr(record.ledger, self.field)))

    def values(self, comparison: Comparison, policy: str, site: str, name: str) -> F8:
        """Returns a line of a site under a policy in each environment."""
        lines = [getattr(record.ledger, self.field).get(site, self.none) for record in comparison.records[policy]]
        return np.array([float(getattr(line, name)) for line in lines])

    def rows(
        self, comparison: Comparison, columns: Mapping[str, tuple[str, int]]
    ) -> Iterator[tuple[str, str, list[str]]]:
        """Yields site, policy and the cells of some columns, which are means over the environments.

        Args:
            comparison: Comparison.
            columns: Line and decimals of each column.
        """
        for site in self.sites(comparison):
            for policy in comparison.ranked():
                cells = [
                    number(mean(self.values(comparison, policy, site, name)), digits)
                    for name, digits in columns.values()
                ]
                yield site, policy, cells

    def table(
        self, comparison: Comparison, title: str, columns: Mapping[str, tuple[str, int]], caption: str
    ) -> TextTable | None:
        """Returns a row per site and policy, or None where no site has such lines; ``columns`` as in ``rows``."""
        if not self.sites(comparison):
            return None
        rows = tuple((site, policy, *cells) for site, policy, cells in self.rows(comparison, columns))
        return TextTable(title=title, header=("site", "policy", *columns), rows=rows, caption=caption)

    def metrics(self, comparison: Comparison, derived: Mapping[str, tuple[str, str, str]]) -> list[Metric]:
        """Returns every line of every site under every policy, and ratios of two of them.

        Args:
            comparison: Comparison.
            derived: By name of a ratio, the two lines and its unit.
        """
        found = []
        for site in self.sites(comparison):
            for policy in comparison.records:
                found += [self.metric(comparison, site, policy, name) for name in self.names]
                for name, (above, below, unit) in derived.items():
                    parts = (self.values(comparison, policy, site, each) for each in (above, below))
                    found.append(Metric.of(f"{self.prefix}/{site}/{name}/{policy}", ratio(*parts), unit))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the lines."""
        return tuple(line.name for line in fields(self.type))

    def metric(self, comparison: Comparison, site: str, policy: str, name: str) -> Metric:
        """Returns the mean of a line of a site under a policy."""
        value = mean(self.values(comparison, policy, site, name))
        return Metric.of(f"{self.prefix}/{site}/{name}/{policy}", value, unit_of(name))
