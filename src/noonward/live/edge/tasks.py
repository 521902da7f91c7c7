"""Image tasks of a service and what became of them, kept as a JSON file each beside their images."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from noonward.errors import NoonwardError
from noonward.files import make_folder, whole_file, write_text

State = Literal["queued", "running", "done", "failed"]
Fault = Literal["task", "batch", "worker", "service"]
"""What a launch failed by; only those that failed by the task count as its tries. ``batch``: by one of several images
that were drawn at once; each is drawn alone the next time."""
FORMAT: Final = 1
"""Format of the files."""
UNREADABLE: Final = "unreadable"
"""Folder within ``tasks`` to which records are moved that cannot be read."""


@dataclass(kw_only=True)
class Attempt:
    """One launch of a task on a gang. Times of day are Unix seconds.

    Attributes:
        servers: Servers of the gang, the first member first.
        steps: Inference steps.
        formed: Whether the gang was formed for it, not reused.
        launched_unix_s: Launch.
        ended_unix_s: End, or None while it runs.
        load_s: Longest time that a member took to load the model, s; 0 if all had it.
        join_s: Longest time that a member took to join the gang, s.
        prompt_s: Time to encode the prompt, s.
        run_s: Longest time that a member took for all its steps, s.
        decode_s: Time from the latent to the PNG file, s.
        sent_mb: Keys and values that all members sent, MB.
        images: Images that were drawn at once; times are those of all of them.
        energy_j: Estimate from the servers' powers and these times, an equal share for each image, J.
        error: Why it failed, or None.
        fault: What it failed by.
    """

    servers: list[int]
    steps: int
    formed: bool
    launched_unix_s: float
    ended_unix_s: float | None = None
    load_s: float = 0.0
    join_s: float = 0.0
    prompt_s: float = 0.0
    run_s: float = 0.0
    decode_s: float = 0.0
    sent_mb: float = 0.0
    images: int = 1
    energy_j: float = 0.0
    error: str | None = None
    fault: Fault = "task"


@dataclass(kw_only=True)
class ImageTask:
    """An image that was asked for. Times of day are Unix seconds.

    Attributes:
        id: Its name in the service's folder.
        prompt: What to draw.
        seed: Seed of the first noise.
        gang: Servers it needs at once.
        model: Name of the model.
        steps_max: Most inference steps.
        submitted_unix_s: When it was submitted.
        deadline_unix_s: Latest end, or None.
        state: ``queued``, ``running``, ``done`` or ``failed``.
        reason: Why it failed.
        ended_unix_s: When it was done or failed.
        response_s: Seconds from its submission to its image, if it is done.
        negative: What not to draw, with guidance.
        guidance: Scale of classifier-free guidance, 1 for none; None: the service's.
        width: Pixels of the image's width; None: the model's own.
        height: Pixels of its height; None: the model's own.
        quality: Quality by its steps, after the scenario's law (that of the paper's model, not of this one).
        attempts: Its launches.
    """

    id: str
    prompt: str
    seed: int
    gang: int
    model: str
    steps_max: float
    submitted_unix_s: float
    deadline_unix_s: float | None = None
    state: State = "queued"
    reason: str | None = None
    ended_unix_s: float | None = None
    response_s: float | None = None
    negative: str = ""
    guidance: float | None = None
    width: int | None = None
    height: int | None = None
    quality: float | None = None
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def energy_j(self) -> float:
        """Estimated energy of all its attempts, J."""
        return sum(attempt.energy_j for attempt in self.attempts)

    @property
    def like(self) -> tuple[Any, ...]:
        """What tasks must have in common to be drawn at once: model, gang, most steps, size and guidance."""
        return self.model, self.gang, self.steps_max, self.width, self.height, self.guidance

    @property
    def alone(self) -> bool:
        """Whether it must be drawn alone: a launch of several images failed that it took part in."""
        return any(attempt.fault == "batch" for attempt in self.attempts)

    def as_dict(self) -> dict[str, Any]:
        """Returns all fields, and the energy."""
        return {**asdict(self), "energy_j": self.energy_j}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ImageTask:
        """Returns a task from what ``as_dict`` returned.

        Raises:
            ValueError: A field is missing or of another type, or the prompt is no Unicode text.
        """
        try:
            task = msgspec.convert(content, cls)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
        (task.prompt + task.negative).encode()
        return task


class TaskStore:
    """The tasks of a folder: ``tasks/ID.json`` and ``images/ID.png``, and measured times; each written whole.

    Args:
        folder: The service's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._tasks, self.images, self._times = folder / "tasks", folder / "images", folder / "times.json"
        make_folder(self._tasks)
        make_folder(self.images)

    def keep(self, task: ImageTask) -> None:
        """Writes a task's record."""
        write_text(self._tasks / f"{task.id}.json", json.dumps({"format": FORMAT, **task.as_dict()}, indent=1) + "\n")

    def keep_image(self, task: ImageTask, png: bytes) -> None:
        """Writes a task's image."""
        with whole_file(self.image(task.id)) as file:
            file.write(png)

    def image(self, name: str) -> Path:
        """Returns where the image of a task lies, by the task's id."""
        return self.images / f"{name}.png"

    def forget(self, task: ImageTask) -> None:
        """Deletes a task's record and image."""
        self.image(task.id).unlink(missing_ok=True)
        (self._tasks / f"{task.id}.json").unlink(missing_ok=True)

    def read(self) -> tuple[dict[str, ImageTask], list[str]]:
        """Returns all tasks by id, in the order of their submission, and a message for every record set aside.

        A record that is damaged or of another format is moved to ``tasks/unreadable``: the others are read.
        """
        found, notes = {}, []
        for path in sorted(self._tasks.glob("*.json")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                if not isinstance(content, dict) or content.get("format") != FORMAT:
                    raise ValueError(f"this version reads format {FORMAT}")
                task = ImageTask.from_dict(content)
                if task.id != path.stem or number_of(task.id) is None:
                    raise ValueError(f"it is the record of {task.id!r}")
                found[task.id] = task
            except (ValueError, OSError, RecursionError) as error:
                notes.append(f"{path.name} is no readable record of a task and was {self._set_aside(path)}: {error}")
        return found, notes

    def first_free(self) -> int:
        """Returns the number after those of all records, also of those that were set aside."""
        names = [*self._tasks.glob("*.json"), *(self._tasks / UNREADABLE).glob("*.json")]
        return 1 + max((number_of(path.stem) or 0 for path in names), default=0)

    def keep_times(self, content: dict[str, Any]) -> None:
        """Writes measured times (``Predictor.state``)."""
        write_text(self._times, json.dumps(content) + "\n")

    def read_times(self) -> Any:
        """Returns what ``keep_times`` wrote, or None if there is nothing that can be read."""
        try:
            return json.loads(self._times.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None

    def _set_aside(self, path: Path) -> str:
        """Moves a record out of the way; returns what became of it."""
        place = self._tasks / UNREADABLE
        try:
            make_folder(place)
            path.replace(place / path.name)
        except (OSError, NoonwardError) as error:
            return f"left out (it cannot be moved: {error})"
        return f"set aside in {place}"


def number_of(name: str) -> int | None:
    """Returns the number of a task by its id, ``image-NUMBER``; None if it is no such id.

    Example:
        >>> number_of("image-000012"), number_of("notes")
        (12, None)
    """
    word, _, digits = name.partition("-")
    return int(digits) if word == "image" and digits.isascii() and digits.isdigit() else None
