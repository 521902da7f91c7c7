"""Image tasks of a service and what became of them, kept as a JSON file each beside their images."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from noonward.errors import DataError
from noonward.files import make_folder, whole_file, write_text

State = Literal["queued", "running", "done", "failed"]
FORMAT: Final = 1
"""Format of the files."""


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
        energy_j: Estimate from the servers' powers and these times, J.
        error: Why it failed, or None.
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
    energy_j: float = 0.0
    error: str | None = None


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
    quality: float | None = None
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def energy_j(self) -> float:
        """Estimated energy of all its attempts, J."""
        return sum(attempt.energy_j for attempt in self.attempts)

    def as_dict(self) -> dict[str, Any]:
        """Returns all fields, and the energy."""
        return {**asdict(self), "energy_j": self.energy_j}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ImageTask:
        """Returns a task from what ``as_dict`` returned."""
        values = {name: value for name, value in content.items() if name not in ("energy_j", "format")}
        values["attempts"] = [Attempt(**attempt) for attempt in values["attempts"]]
        return cls(**values)


class TaskStore:
    """The tasks of a folder: ``tasks/ID.json`` and ``images/ID.png``, each written whole.

    Args:
        folder: The service's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._tasks, self.images = folder / "tasks", folder / "images"
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

    def read(self) -> dict[str, ImageTask]:
        """Returns all tasks by id, in the order of their submission.

        Raises:
            DataError: A record is damaged or of another format.
        """
        found = {}
        for path in sorted(self._tasks.glob("*.json")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                if content["format"] != FORMAT:
                    raise DataError(f"{path} has format {content['format']}; this version reads format {FORMAT}")
                found[path.stem] = ImageTask.from_dict(content)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path} is a damaged record of a task: {error}; move it away") from error
        return found
