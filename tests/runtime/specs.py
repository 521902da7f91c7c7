"""Small specs for tests of executors; workers import them by this module's name."""

import itertools
import os
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.checkpoint import Checkpoint
from noonward.engine.run import run
from noonward.errors import MissingExtraError, ScenarioError
from noonward.notices import tell
from noonward.runtime.shared import shared
from noonward.schedule.policies import make_scheduler


class OddError(Exception):
    """An error that cannot be unpickled: it is made from two values and keeps one."""

    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


@dataclass(frozen=True)
class Square:
    """Squares a number, and may do something else first."""

    n: int
    folder: Path | None = None
    first: str = ""
    portable: bool = True
    last: bool = False

    @property
    def label(self):
        return f"square of {self.n}"

    @property
    def group(self):
        return self.n // 2

    def run(self):
        getattr(self, f"_{self.first or 'nothing'}")()
        return self.n**2, os.getpid()

    def keep(self, found):
        if self.folder is not None:
            (self.folder / str(self.n)).touch()
        return found

    def _nothing(self):
        pass

    def _tell(self):
        tell("progress", f"half of {self.n}")

    def _wait(self):
        time.sleep(60)

    def _wait_a_little(self):
        time.sleep(0.05)

    def _scenario_error(self):
        raise ScenarioError(f"{self.n} is wrong; give another")

    def _missing_extra(self):
        raise MissingExtraError("ray", "ray")

    def _odd(self):
        raise OddError("odd", self.n)

    def _die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _die_once(self):
        try:
            (self.folder / f"died-{self.n}").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Reading:
    """Reads a file, once for all specs of a call."""

    n: int
    path: Path
    label = "reading"
    group = "reading"
    portable = True

    def run(self):
        time.sleep(0.02)
        return shared(self.path, self.path.read_text)

    def keep(self, found):
        return found


@dataclass(frozen=True)
class Endless(Square):
    """A run that is kept in a checkpoint, on a clock that stands still after a while, until the run is to stop."""

    def run(self):
        times = itertools.count()

        def clock():
            if (time_s := next(times)) == 30:
                (self.folder / "under way").touch()
                while signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:  # it has not been asked to stop
                    time.sleep(0.01)
            return float(time_s)

        kept = Checkpoint(self.folder / "kept.npz", clock=clock)
        return run(build_environment(load_scenario("tiny")), make_scheduler("most-free"), checkpoint=kept).steps


@dataclass(frozen=True)
class Table:
    """A table that specs share; whenever it is built, a file more lies in the folder."""

    folder: Path
    number: int

    @property
    def key(self):
        return "table", self.number

    def make(self):
        (self.folder / f"built-{self.number}-{uuid.uuid4().hex}").touch()
        return np.full(100_000, float(self.number))


@dataclass(frozen=True)
class Summing:
    """Sums a shared table, once a file is there."""

    n: int
    folder: Path
    waits_for: Path | None = None
    portable = True

    @property
    def label(self):
        return f"sum {self.n}"

    @property
    def group(self):
        return self.n // 4

    @property
    def shares(self):
        return Table(self.folder, self.group)

    def run(self):
        while self.waits_for is not None and not self.waits_for.exists():
            time.sleep(0.01)
        return float(shared(self.shares.key, self.shares.make).sum()) + self.n

    def keep(self, found):
        return found
