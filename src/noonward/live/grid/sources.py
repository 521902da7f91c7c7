"""Sources of hourly prices and intensities: files that others keep up to date, and the packaged generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime, timedelta

import numpy as np

from noonward.data.signals.generate import generate_signals, sinusoidal_signals
from noonward.data.signals.load import load_signals
from noonward.errors import NoonwardError
from noonward.model.cluster.scenario import GeneratedSignals, Scenario, SignalFile, SignalFiles, SinusoidalSignals
from noonward.model.signals import CARBON_NAME, PRICE_NAME, Signals
from noonward.seeding import stream
from noonward.units import HOUR_S


class SourceError(NoonwardError):
    """A source of signals did not answer, or answered with what cannot be used."""


class SignalSource(ABC):
    """Says what prices and intensities were."""

    name: str
    """What it is, as it is shown beside its values."""

    @abstractmethod
    def fetch(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
        """Returns the signals of some hours; NaN where the source does not know them. It does not take long.

        Raises:
            SourceError: It cannot be asked now.
        """

    def refresh(self, zones: tuple[str, ...], start: datetime, hours: int) -> None:  # noqa: B027
        """Asks for what ``fetch`` returns later; may take long.

        Raises:
            SourceError: It cannot be asked now, or not about everything.
        """

    def expected(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals | None:
        """Returns what its publisher expects of hours whose signals are not known yet; None: it expects nothing."""
        return None

    def published(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
        """Returns the prices that are known of hours to come; NaN where none is. Asks nobody.

        Of a zone with a day-ahead market (``noonward.model.markets``), those that have been published count.

        Raises:
            SourceError: It cannot be asked now.
        """
        return self.fetch(zones, start, hours)


class GeneratedSource(SignalSource):
    """Hours drawn from the packaged statistics, the same for a seed: for trying the service out.

    Args:
        signals: Settings of the generator.
        start: First hour.
        hours: Hours that are drawn.
        seed: Seed, stream ``world``.
    """

    def __init__(self, signals: GeneratedSignals, start: datetime, hours: int, seed: int) -> None:
        self.name = f"generated ({signals.calibration})"
        self._settings, self._start, self._hours, self._seed = signals, start, hours, seed
        self._drawn: Signals | None = None

    def fetch(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
        """Returns some of the hours drawn."""
        if self._drawn is None or self._drawn.zones != zones:
            rng = stream(self._seed, "world", 0)
            self._drawn = generate_signals(zones, self._start, self._hours, rng, self._settings.calibration)
        return _part(self._drawn, zones, start, hours)


class SinusoidalSource(SignalSource):
    """The same every day, as a scenario states."""

    name = "sinusoidal"

    def __init__(self, signals: SinusoidalSignals) -> None:
        self._signals = signals

    def fetch(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
        """Returns the hours."""
        return sinusoidal_signals(self._signals, zones, start, hours)


class FileSource(SignalSource):
    """Files of any format that is imported, which another program keeps up to date; read again when they have changed.

    Args:
        signals: Paths and format.
    """

    def __init__(self, signals: SignalFiles) -> None:
        self._paths = [each.path if isinstance(each, SignalFile) else each for each in signals.paths]
        self.name = ", ".join(path.name for path in self._paths)
        self._settings = signals
        self._read: tuple[tuple[int, ...], Signals] | None = None

    def fetch(self, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
        """Returns what the files hold of some hours."""
        settings = self._settings
        try:
            changed = tuple(path.stat().st_mtime_ns for path in self._paths)
            if self._read is None or self._read[0] != changed:
                held = load_signals(settings.paths, settings.format, settings.columns, zones)
                self._read = changed, held
        except (OSError, NoonwardError) as error:
            raise SourceError(f"{self.name}: {error}") from error
        return _part(self._read[1], zones, start, hours)


def source_of(scenario: Scenario, start: datetime, hours: int, seed: int) -> SignalSource | None:
    """Returns the source that a scenario names, or None.

    Args:
        scenario: Scenario.
        start: First hour that may be asked for.
        hours: Hours from there on that a generator draws.
        seed: Seed of a generator.
    """
    signals = scenario.signals
    if signals is None:
        return None
    if isinstance(signals, GeneratedSignals):
        return GeneratedSource(signals, start, hours, seed)
    if isinstance(signals, SinusoidalSignals):
        return SinusoidalSource(signals)
    return FileSource(signals)


def _part(signals: Signals, zones: tuple[str, ...], start: datetime, hours: int) -> Signals:
    """Returns some hours of signals, NaN where they do not reach."""
    first = round((start - signals.start) / timedelta(seconds=HOUR_S))
    values = {}
    for name in (PRICE_NAME, CARBON_NAME):
        held_ZH = signals.select(zones).of(name)
        out_ZH = np.full((len(zones), hours), np.nan)
        low, high = max(first, 0), min(first + hours, held_ZH.shape[1])
        if low < high:
            out_ZH[:, low - first : high - first] = held_ZH[:, low:high]
        values[name] = out_ZH
    return Signals(start=start, zones=zones, value_ZH=values)
