"""What a worker needs of an image model, whatever draws: the protocol, and PNG files."""

from __future__ import annotations

import io
from collections.abc import Callable
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
        """Takes in that the gang's process group stands, and that this worker is a member of it.

        Raises:
            NoonwardError: It cannot draw in a gang of this size.
        """

    def draw(self, order: Order, rank: int, done: Callable[[int], None]) -> Drawn:
        """Draws an image, or a member's part of it.

        Args:
            order: The image.
            rank: Number of the member, from 0; the first one returns the PNG file.
            done: Called after every step with the steps done; what it raises ends the run.

        Raises:
            NoonwardError: The task is wrong; no other launch would do better.
        """

    def left(self) -> None:
        """Takes in that the gang is dissolved."""


def comments_of(order: Order) -> dict[str, str]:
    """Returns what an image's file says about it."""
    return {
        "task": order.task,
        "gang": str(order.size),
        "prompt": order.prompt,
        "seed": str(order.seed),
        "steps": str(order.steps),
    }


def png_of(image: Image, comments: dict[str, str]) -> bytes:
    """Returns an image as a PNG file with comments."""
    from PIL import PngImagePlugin

    words = PngImagePlugin.PngInfo()
    for name, text in comments.items():
        words.add_itxt(name, text)
    file = io.BytesIO()
    image.save(file, "PNG", pnginfo=words)
    return file.getvalue()
