"""Pipelines of diffusers: Flux, Qwen-Image and Stable Diffusion 3.5, in gangs by the library's context parallelism.

A gang splits the tokens of an image. In every attention each member gathers all tokens for its share of the heads
(Ulysses), so the image is that of one worker. Every member encodes the prompt and decodes the image; only the first one
keeps it.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.distributed.device_mesh import init_device_mesh

from noonward.errors import DataError
from noonward.live.edge.image_model import pngs_of
from noonward.live.edge.orders import Drawn, Order


class Pipeline:
    """A pipeline loaded from a folder in the layout of diffusers.

    Args:
        folder: The folder.
        device: Device of torch.
        precision: Type of weights.
    """

    def __init__(self, folder: str, device: str, precision: str) -> None:
        self._folder, self._device, self._precision = folder, device, precision
        self._pipe = self._loaded()
        self._takes = inspect.signature(self._pipe.__call__).parameters

    @classmethod
    def load(cls, folder: str, device: str, precision: str) -> Pipeline:
        """Returns the model of a folder."""
        return cls(folder, device, precision)

    def _loaded(self) -> Any:
        """Returns the pipeline, for one worker alone."""
        from diffusers import DiffusionPipeline

        given: dict[str, Any] = {"local_files_only": True, "torch_dtype": getattr(torch, self._precision)}
        pipe: Any = DiffusionPipeline.from_pretrained(self._folder, **given).to(self._device)
        pipe.set_progress_bar_config(disable=True)
        return pipe

    def joined(self, rank: int, size: int) -> None:
        """Splits the transformer's tokens among the members of the gang.

        Raises:
            DataError: The library cannot split this transformer.
        """
        from diffusers import ContextParallelConfig

        transformer = self._pipe.transformer
        if transformer._cp_plan is None:
            kind = type(transformer).__name__
            raise DataError(
                f"diffusers cannot split a {kind} among the servers of a gang; give a gang of 1, or, on GPUs, install "
                "xfuser for Stable Diffusion 3.5"
            )
        mesh = init_device_mesh(self._device, (1, size), mesh_dim_names=("ring", "ulysses"))
        with _counted_devices(self._device):
            transformer.enable_parallelism(
                config=ContextParallelConfig(ulysses_degree=size, ulysses_anything=True, mesh=mesh)
            )

    def left(self) -> None:
        """Puts the transformer together again; the library has no public call for it."""
        from diffusers.hooks.context_parallel import remove_context_parallel

        transformer = self._pipe.transformer
        if transformer._parallel_config is None:
            return
        remove_context_parallel(transformer, transformer._cp_plan)
        transformer._parallel_config = None
        for module in transformer.modules():
            if hasattr(getattr(module, "processor", None), "_parallel_config"):
                module.processor._parallel_config = None

    @torch.inference_mode()
    def draw(self, order: Order, rank: int, done: Callable[[int], None]) -> Drawn:
        """Draws images; their times are not separated, and their exchanges not counted."""
        begin = time.perf_counter()

        def stepped(pipe: Any, step: int, time_t: Any, kept: dict[str, Any]) -> dict[str, Any]:
            done(step + 1)
            return kept

        result = self._pipe(
            prompt=[picture.prompt for picture in order.pictures],
            num_inference_steps=order.steps,
            generator=[torch.Generator().manual_seed(picture.seed) for picture in order.pictures],
            callback_on_step_end=stepped,
            **self._wanted(order),
        )
        images = self._images(result)
        ran = time.perf_counter()
        pngs = pngs_of(images, order) if rank == 0 else ()
        return Drawn(prompt_s=0.0, run_s=ran - begin, decode_s=time.perf_counter() - ran, sent_bytes=0, pngs=pngs)

    def _images(self, result: Any) -> list[Any]:
        """Returns the images of what the pipeline returned."""
        return list(result.images)

    def _wanted(self, order: Order) -> dict[str, Any]:
        """Returns size and guidance as the pipeline takes them: without guidance its own choice stays."""
        wanted: dict[str, Any] = {}
        if order.sides_px is not None:
            wanted["width"], wanted["height"] = order.sides_px
        if order.drawing.guidance is not None:
            name = "true_cfg_scale" if "true_cfg_scale" in self._takes else "guidance_scale"
            wanted[name] = order.drawing.guidance
            wanted["negative_prompt"] = [picture.negative or " " for picture in order.pictures]
        return wanted


@contextmanager
def _counted_devices(device: str) -> Iterator[None]:
    """Has the library find a device on a machine that has no accelerator; it divides by their number."""
    if device != "cpu":
        yield
        return
    with mock.patch.object(torch.accelerator, "device_count", return_value=1):
        yield
