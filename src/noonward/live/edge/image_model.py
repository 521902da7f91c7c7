"""What a worker needs of an image model, whatever draws: the protocol, and PNG files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from noonward.live.edge.orders import Drawn, Order

if TYPE_CHECKING:
    from PIL.Image import Image


class ImageModel(Protocol):
    """A model in the memory of one worker, which draws alone or as a member of a gang."""

    @classmethod
    def load(cls, folder: str, device: str, precision: str) -> ImageModel:
        """Returns the model of a folder.

        Args:
            folder: The folder, in the layout of diffusers.
            device: ``cpu`` or ``cuda``.
            precision: Type of weights: ``float32``, ``bfloat16``, ``float16``.
        """

    def joined(self, rank: int, size: int) -> None:
        """Called when this worker has joined its gang's process group.

        Raises:
            NoonwardError: It cannot draw in a gang of this size.
        """

    def draw(self, order: Order, rank: int, done: Callable[[int], None]) -> Drawn:
        """Draws the images of an order at once, or a member's part of them.

        Args:
            order: The images.
            rank: Number of the member, from 0; the first one returns the PNG files.
            done: Called after every step with the steps done; what it raises ends the run.

        Raises:
            NoonwardError: The task is wrong; no other launch would do better.
        """

    def left(self) -> None:
        """Called when the gang is dissolved."""


def pngs_of(images: Iterable[Image], order: Order) -> tuple[bytes, ...]:
    """Returns the images of an order as PNG files that say what they were drawn with."""
    from PIL import PngImagePlugin

    files = []
    for image, picture in zip(images, order.pictures, strict=True):
        words = PngImagePlugin.PngInfo()
        said = {"task": picture.task, "gang": order.size, "prompt": picture.prompt, "seed": picture.seed}
        for name, value in {**said, "steps": order.steps}.items():
            words.add_itxt(name, str(value))
        file = io.BytesIO()
        image.save(file, "PNG", pnginfo=words)
        files.append(file.getvalue())
    return tuple(files)
