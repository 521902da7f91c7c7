"""Checkpoints: a run under way is written to a file now and then, so that it can be interrupted and resumed."""

from __future__ import annotations

import json
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from noonward.errors import DataError, FileError, ScenarioError
from noonward.files import stored_arrays, write_arrays
from noonward.ledger.machine import versions
from noonward.ledger.record import environment_digest
from noonward.notices import stoppable, tell
from noonward.sources import digest, package_digest

FORMAT: Final = 1
"""Version of the format of checkpoints."""
EVERY_S: Final = 300.0
"""Real seconds between two checkpoints, unless said otherwise."""
WORTH_S: Final = 10.0
"""Real seconds of work that a last checkpoint is written for when a run is stopped."""
WRITES: Final = 50.0
"""The time between two checkpoints is at least so many times that which writing one takes."""
SHORT_S, LONG_S = 0.05, 0.2
"""Real seconds that compiled loops run between two pauses: stretches that take less are lengthened, others cut."""
SCHEDULER: Final = "scheduler/"
"""How the names of the scheduler's arrays begin."""
REMEDY: Final = "; remove it or name another file"
"""What to do about a checkpoint that is refused."""
WORDS: Final = {
    "format": "a checkpoint of another version of this package",
    "package": "of another version of this package or its libraries",
    "environment": "of another environment",
    "scheduler": "of another scheduler",
    "seed": "of another seed",
}
"""What a checkpoint is if it is not of this run, by what differs."""


@dataclass(frozen=True)
class Checkpoint:
    """A file that holds a run while it is under way, for ``run``.

    The first checkpoint is written after ``every_s``. Called again after an interrupt or a crash, with the same
    arguments and a new scheduler that was made in the same way, ``run`` continues from the last one, and its outcome is
    that of an unbroken run, byte for byte. Ctrl-C and SIGTERM have a last one written first, if the run is in the main
    thread (or ``noonward.notices.ask_to_stop`` is called).

    Args:
        path: File. ``run`` leaves it there: ``remove`` it once the outcome is stored.
        every_s: Real seconds from one checkpoint to the next, at least 0; more where writing one takes longer than a
            fiftieth of it. A shorter run writes none.
        about: What identifies the run, beside its environment, its seed, the scheduler's class and the version of this
            package: say the settings that the scheduler was made with. Texts by name.
        strict: Whether a file that is damaged or of another run is refused; else a notice says so
            (``noonward.notices``), the run begins again, and its checkpoints replace the file.
        clock: Returns real time, s.

    Example:
        >>> from noonward import build_environment, load_scenario, make_scheduler, run, settle
        >>> kept = Checkpoint(Path("long.checkpoint"))
        >>> outcome = run(build_environment(load_scenario("tiny")), make_scheduler("local-fcfs"), checkpoint=kept)
        >>> kept.remove()
    """

    path: Path
    every_s: float = EVERY_S
    about: Mapping[str, str] = field(default_factory=dict)
    strict: bool = True
    clock: Callable[[], float] = time.monotonic

    def remove(self) -> None:
        """Removes the file, if there is one."""
        Path(self.path).unlink(missing_ok=True)

    def resume(self, engine: ClusterEngine) -> bool:
        """Restores a new engine and its scheduler, which was reset, from the file.

        Returns:
            Whether there is one; then a question waits for its answer.

        Raises:
            DataError: The file is damaged or of another run; engine and scheduler must be made anew.
        """
        path = Path(self.path)
        if not path.exists():
            return False
        try:
            arrays = stored_arrays(path)
            content = json.loads(arrays.pop("content").tobytes())
            mine = identity(engine, self.about)
            for name in (*mine, *content["run"]):
                if mine.get(name) != content["run"].get(name):
                    by = _other_versions(content.get("versions", {})) if name in ("format", "package") else ""
                    raise DataError(f"it is {WORDS.get(name, f'of another {name}')}{by}")
            engine.scheduler.load_state(_with_arrays(content["scheduler"], arrays))
            engine.load_state({name: array for name, array in arrays.items() if not name.startswith(SCHEDULER)})
        except (ScenarioError, DataError, KeyError, ValueError, TypeError) as error:
            raise DataError(f"{path} cannot be continued from: {error}{REMEDY}") from error
        tell("checkpoint", f"resumed at {_far(engine)} from {path}")
        return True

    @contextmanager
    def keeping(self, engine: ClusterEngine) -> Iterator[Keeper]:
        """Writes checkpoints of a run that is carried out within, whenever the keeper looks at it."""
        keeper = Keeper(self, engine)
        with stoppable(keeper.stop), keeper.signals():
            yield keeper


def identity(engine: ClusterEngine, about: Mapping[str, str]) -> dict[str, Any]:
    """Returns what a run is, and what its user says about it."""
    kind = type(engine.scheduler)
    return {
        "format": FORMAT,
        "package": digest([], package_digest() + json.dumps(versions())),
        "environment": environment_digest(engine.environment),
        "scheduler": f"{kind.__module__}.{kind.__qualname__}",
        "seed": engine.seed,
        **about,
    }


class Keeper:
    """Looks at a run in its pauses: writes its checkpoints, and ends it after a last one when it is to stop.

    Args:
        checkpoint: Where and how often.
        engine: Engine of the run, whose scheduler was reset.

    Raises:
        ScenarioError: The scheduler cannot be stored.
    """

    def __init__(self, checkpoint: Checkpoint, engine: ClusterEngine) -> None:
        self._checkpoint, self._engine = checkpoint, engine
        self._begun = _attributes(engine.scheduler)
        self._stretch_s = engine.view.now_s + 1.0
        self._last_s = self._written_s = checkpoint.clock()
        self._every_s = checkpoint.every_s
        self._identity: dict[str, Any] = {}
        self._stopping = False
        self._signal: int | None = None

    def look(self) -> None:
        """Writes a checkpoint if it is time; ends the run after a last one if it is to stop.

        Raises:
            KeyboardInterrupt: The run was to stop.
            ScenarioError: The scheduler remembers more than it says in ``state``.
            FileError: The checkpoint cannot be written.
        """
        now_s = self._checkpoint.clock()
        taken_s, self._last_s = now_s - self._last_s, now_s
        if taken_s < SHORT_S:
            self._stretch_s *= 2
        elif taken_s > LONG_S:
            self._stretch_s = max(1.0, self._stretch_s / 2)
        if self._stopping:
            self._end(now_s)
        elif now_s - self._written_s >= self._every_s:
            self._write(now_s)

    def until_s(self, now_s: float) -> float:
        """Returns the time of the run until which a compiled loop need not pause, s."""
        return now_s + self._stretch_s

    def stop(self) -> None:
        """Has the run end at its next pause."""
        self._stopping = True

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Has Ctrl-C and SIGTERM stop the run in a pause, if this is the main thread and they are not ignored.

        The second time they do what they did before.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with ExitStack() as stack:

            def note(number: int, frame: FrameType | None) -> None:
                self.stop()
                self._signal = number
                stack.close()

            for each in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(each)
                if before is not None and before != signal.SIG_IGN:
                    signal.signal(each, note)
                    stack.callback(signal.signal, each, before)
            yield

    def _end(self, now_s: float) -> None:
        """Writes a last checkpoint, if the work since the last one is worth it, and ends the run."""
        path, engine = self._checkpoint.path, self._engine
        if now_s - self._written_s >= min(WORTH_S, self._every_s):
            self._write(now_s)
            tell("checkpoint", f"stopped at {_far(engine)}, kept in {path}; the same command continues from there")
        elif path.exists():
            tell("checkpoint", f"stopped at {_far(engine)}; the same command continues from the checkpoint in {path}")
        else:
            tell("checkpoint", f"stopped at {_far(engine)}, too early to be kept; the same command begins again")
        if self._signal is not None:
            signal.raise_signal(self._signal)
        raise KeyboardInterrupt

    def _write(self, now_s: float) -> None:
        """Writes a checkpoint."""
        now = _attributes(self._engine.scheduler)
        if changed := sorted(name for name in {*self._begun, *now} if self._begun.get(name) != now.get(name)):
            who = type(self._engine.scheduler).__name__
            raise ScenarioError(
                f"a run under {who} cannot be kept in a checkpoint: {who} changes {', '.join(changed)} while it runs, "
                "but has no state(); give it state() and load_state() (check_scheduler tries them), or run it without "
                "a checkpoint"
            )
        engine, arrays = self._engine, dict[str, NDArray[Any]]()
        self._identity = self._identity or identity(engine, self._checkpoint.about)
        state = _without_arrays(engine.scheduler.state(), SCHEDULER, arrays)
        content = json.dumps({"run": self._identity, "versions": versions(), "scheduler": state}).encode()
        held = {"content": np.frombuffer(content, np.uint8)}
        try:
            write_arrays(Path(self._checkpoint.path), held | arrays | engine.state())
        except FileError as error:
            if self._checkpoint.strict:
                raise
            tell("checkpoint", f"{error} (a checkpoint of a run, which goes on)")
        self._written_s = self._last_s = self._checkpoint.clock()
        self._every_s = max(self._checkpoint.every_s, WRITES * (self._written_s - now_s))


def _other_versions(written: Mapping[str, str]) -> str:
    """Returns how versions differ from these, in brackets.

    Args:
        written: Versions that a checkpoint was written with, by name of the package; empty: it does not say.
    """
    here = versions()
    other = [name for name in here if written.get(name) != here[name]]
    if not written:
        return f" (it does not say which; this is noonward {here['noonward']})"
    if not other:
        return f" (both are noonward {here['noonward']}, but their source files differ)"
    theirs, ours = (
        ", ".join(f"{name} {each.get(name, 'of unknown version')}" for name in other) for each in (written, here)
    )
    return f" (written with {theirs}; this is {ours})"


def _far(engine: ClusterEngine) -> str:
    """Returns how far a run is."""
    return f"{int(engine.world.engine_1['next_arrival'][0]):,} of {len(engine.environment.jobs):,} jobs"


def _attributes(scheduler: Scheduler) -> dict[str, bytes]:
    """Returns what a scheduler that has no ``state`` of its own holds, by name: none of it may change.

    Raises:
        ScenarioError: It cannot be looked at.
    """
    if type(scheduler).state is not Scheduler.state:
        return {}
    held = {}
    for name, value in vars(scheduler).items():
        try:
            held[name] = pickle.dumps(value)
        except Exception as error:  # pickle raises almost anything
            who = type(scheduler).__name__
            raise ScenarioError(
                f"a run under {who} cannot be kept in a checkpoint: {who} has no state(), and whether {name} changes "
                f"cannot be found out ({error}); give it state() and load_state(), or run it without a checkpoint"
            ) from error
    return held


def _without_arrays(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Returns what JSON can hold of a state; its arrays are added to others, under names that begin so.

    Raises:
        ScenarioError: It holds something else.
    """
    if isinstance(value, np.ndarray | np.generic):
        arrays[name] = np.asarray(value)
        return {"array": name}
    if isinstance(value, Mapping):
        return {"dict": {key: _without_arrays(each, f"{name}{key}/", arrays) for key, each in value.items()}}
    if isinstance(value, list | tuple):
        return [_without_arrays(each, f"{name}{n}/", arrays) for n, each in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ScenarioError(
        f"the scheduler's state holds a {type(value).__name__}; it may hold arrays, numbers, strings, None, and lists "
        "and dicts of such"
    )


def _with_arrays(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Returns a state from what ``_without_arrays`` made of it."""
    if isinstance(value, list):
        return [_with_arrays(each, arrays) for each in value]
    if isinstance(value, dict):
        if "array" in value:
            return arrays[value["array"]]
        return {key: _with_arrays(each, arrays) for key, each in value["dict"].items()}
    return value
