"""Image tasks of a service and what became of them, kept in its store; their images are files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from noonward.files import make_folder, whole_file
from noonward.live.store.database import Connection
from noonward.live.store.store import Store

State = Literal["queued", "running", "done", "failed"]
Fault = Literal["task", "batch", "worker", "service"]
"""What a launch failed by; only those that failed by the task count as its tries. ``batch``: by one of several images
that were drawn at once; each is drawn alone the next time."""
LAST: Final = "last_image"
"""Value of the store: the largest number of an image that was deleted."""
TIMES: Final = "image_times"
"""Value of the store: measured times."""
_KEEP: Final = "INSERT INTO images (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record"


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
        owner: Name of the token that submitted it.
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
    owner: str = ""

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
    def from_record(cls, record: str) -> ImageTask:
        """Returns a task from its record, as JSON.

        Raises:
            ValueError: A field is missing or of another type, or the prompt is no Unicode text.
        """
        try:
            task = msgspec.json.decode(record, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error
        (task.prompt + task.negative).encode()
        return task


class TaskStore:
    """The tasks of a service and measured times, in the store of its folder, and the images beside it.

    Args:
        store: The store, the same as that of ``noonward serve``: tokens, backups and versions are shared.
        folder: The service's folder; images are ``images/ID.png`` in it, for whoever looks there.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.images = store, folder / "images"
        make_folder(self.images)

    def keep(self, task: ImageTask) -> None:
        """Writes a task's record; returns once it is on the disk.

        Raises:
            StoreError: It cannot be written now.
        """
        row = number_of(task.id), msgspec.json.encode(task).decode()
        self.store.do(lambda connection, now_s: connection.execute(_KEEP, row) and None)

    def keep_image(self, task: ImageTask, png: bytes) -> None:
        """Writes a task's image."""
        with whole_file(self.image(task.id)) as file:
            file.write(png)

    def image(self, name: str) -> Path:
        """Returns where the image of a task lies, by the task's id."""
        return self.images / f"{name}.png"

    def forget(self, task: ImageTask) -> None:
        """Deletes a task's record and image; its number is not given again.

        Raises:
            StoreError: The store cannot be written now.
            OSError: The image cannot be deleted.
        """
        self.image(task.id).unlink(missing_ok=True)

        def change(connection: Connection, now_s: float) -> None:
            self.store.keep(connection, {LAST: self.first_free() - 1})
            connection.execute("DELETE FROM images WHERE id = ?", (number_of(task.id),))

        self.store.do(change)

    def read(self) -> tuple[dict[str, ImageTask], list[str]]:
        """Returns all tasks by id, in the order of their submission, and a message for every record that is left out.

        A record that this version cannot read stays in the store: the others are read.
        """
        found, notes = {}, []
        for row in self.store.read("SELECT id, record FROM images ORDER BY id"):
            try:
                task = ImageTask.from_record(row["record"])
                if number_of(task.id) != row["id"]:
                    raise ValueError(f"it is the record of {task.id!r}")
                found[task.id] = task
            except ValueError as error:
                notes.append(f"the record of image {row['id']} cannot be read and is left out: {error}")
        return found, notes

    def first_free(self) -> int:
        """Returns the number after those of all records that there were, read or not."""
        last = self.store.read("SELECT coalesce(max(id), 0) AS n FROM images")[0]["n"]
        return 1 + max(int(last), int(self.store.value(LAST) or 0))

    def keep_times(self, content: dict[str, Any]) -> None:
        """Writes measured times (``Predictor.state``)."""
        text = json.dumps(content)
        self.store.do(lambda connection, now_s: self.store.keep(connection, {TIMES: text}))

    def read_times(self) -> Any:
        """Returns what ``keep_times`` wrote, or None if there is nothing that can be read."""
        try:
            return json.loads(self.store.value(TIMES) or "null")
        except (ValueError, RecursionError):
            return None


def number_of(name: str) -> int | None:
    """Returns the number of a task by its id, ``image-NUMBER``; None if it is no such id.

    Example:
        >>> number_of("image-000012"), number_of("notes")
        (12, None)
    """
    word, _, digits = name.partition("-")
    return int(digits) if word == "image" and digits.isascii() and digits.isdigit() else None
