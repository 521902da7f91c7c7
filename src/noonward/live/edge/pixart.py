"""PixArt in memory: prompt to embedding, noise to latent by the rows of a gang, latent to PNG."""

from __future__ import annotations

import hashlib
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from noonward.errors import DataError
from noonward.live.edge.image_model import pngs_of
from noonward.live.edge.orders import Drawing, Drawn, Order, Picture
from noonward.live.edge.patches import RowExchange, Rows

if TYPE_CHECKING:
    from PIL.Image import Image

PROMPT_TOKENS: Final = 120
"""Longest prompt, tokens (PixArt-alpha)."""
STAND_IN_TOKENS: Final = 16
"""Tokens of a prompt's random embedding, if a model has no text encoder."""
GUIDANCE: Final = 4.5
"""Guidance of PixArt with a text encoder."""


class PixArt:
    """A PixArt model loaded from a folder in the layout of diffusers.

    Steps are DDIM without noise (eta 0), which treats every pixel alone, so each
    worker of a gang keeps its own rows to the end.

    Args:
        folder: The folder.
        device: Device of torch.
        precision: Type of weights: ``float32``, ``bfloat16``, ``float16``.
    """

    def __init__(self, folder: str, device: str = "cpu", precision: str = "float32") -> None:
        from diffusers import AutoencoderKL, DDIMScheduler, PixArtTransformer2DModel

        self._device, self._dtype, self._precision = torch.device(device), getattr(torch, precision), precision
        lean = importlib.util.find_spec("accelerate") is not None  # without it diffusers only warns
        given: dict[str, Any] = {"local_files_only": True, "torch_dtype": self._dtype, "low_cpu_mem_usage": lean}
        self._transformer = PixArtTransformer2DModel.from_pretrained(folder, subfolder="transformer", **given)
        self._transformer.to(self._device).eval()
        self._vae = AutoencoderKL.from_pretrained(folder, subfolder="vae", **given).to(self._device).eval()
        self._scheduler = DDIMScheduler.from_pretrained(
            folder, subfolder="scheduler", local_files_only=True, clip_sample=False, timestep_spacing="trailing"
        )
        self._rows = Rows(self._transformer)
        self._text = _Text(folder, self._device, self._dtype) if (Path(folder) / "text_encoder").is_dir() else None

    @classmethod
    def load(cls, folder: str, device: str, precision: str) -> PixArt:
        """Returns the model of a folder."""
        return cls(folder, device, precision)

    def joined(self, rank: int, size: int) -> None:
        """Needs nothing: rows are split for every image."""

    def left(self) -> None:
        """Needs nothing."""

    def draw(self, order: Order, rank: int, done: Callable[[int], None]) -> Drawn:
        """Draws the rows of one member, and the whole images at the first one."""
        begin = time.perf_counter()
        guidance = self.guidance(order.drawing)
        prompt = self.encode(order.pictures, guidance) if rank == 0 else None
        prompt = share_prompt(prompt, self._device.type, self._precision, order.size)
        encoded = time.perf_counter()
        exchange = RowExchange(rank, order.size, order.drawing)
        seeds = [picture.seed for picture in order.pictures]
        own = self.denoise(exchange, prompt, seeds, order.steps, guidance, done, sides_px=order.sides_px)
        latent = whole_latent(own, exchange)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        ran = time.perf_counter()
        pngs = pngs_of(self.images(latent), order) if rank == 0 else ()
        return Drawn(
            prompt_s=encoded - begin,
            run_s=ran - encoded,
            decode_s=time.perf_counter() - ran,
            sent_bytes=exchange.sent_bytes,
            pngs=pngs,
        )

    def encode(self, pictures: Sequence[Picture], guidance: float) -> tuple[Tensor, Tensor]:
        """Returns the embeddings of prompts and the masks of their tokens; with guidance the negative prompts' first.

        Without a text encoder an embedding is drawn from the prompt's digest: it means nothing.

        Raises:
            DataError: A prompt is too long.
        """
        prompts = [] if guidance == 1 else [picture.negative for picture in pictures]
        prompts += [picture.prompt for picture in pictures]
        if self._text is not None:
            return self._text.encode(prompts)
        channels = self._transformer.config.caption_channels
        drawn = [_stand_in(each, channels).to(self._device, self._dtype) for each in prompts]
        embedding_BTD = torch.stack(drawn)
        return embedding_BTD, torch.ones(embedding_BTD.shape[:2], device=self._device, dtype=torch.int64)

    def guidance(self, drawing: Drawing) -> float:
        """Returns the scale of guidance."""
        if drawing.guidance is not None:
            return drawing.guidance
        return 1.0 if self._text is None else GUIDANCE

    @torch.inference_mode()
    def denoise(
        self,
        exchange: RowExchange,
        prompt: tuple[Tensor, Tensor],
        seeds: Sequence[int],
        steps: int,
        guidance: float,
        done: Callable[[int], None] = lambda step: None,
        sides_px: tuple[int, int] | None = None,
    ) -> Tensor:
        """Returns the latents of this worker's rows, one an image.

        Args:
            exchange: Exchange with the other workers of the gang.
            prompt: What ``encode`` returned.
            seeds: Seed of every image's first noise, the same whatever the gang.
            steps: Inference steps.
            guidance: Scale of guidance.
            done: Called after every step with the steps done; what it raises ends the run.
            sides_px: Width and height of the images, pixels; None: the model's own.
        """
        config, scheduler = self._transformer.config, self._scheduler
        factor = 2 ** (len(self._vae.config.block_out_channels) - 1)
        width, whole = (config.sample_size,) * 2 if sides_px is None else (side // factor for side in sides_px)
        sides = (config.in_channels, whole, width)
        noise = torch.stack([torch.randn(sides, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
        height = whole // exchange.size
        latent = noise[:, :, exchange.rank * height : (exchange.rank + 1) * height]
        latent = latent.to(self._device, self._dtype) * scheduler.init_noise_sigma
        embedding_BTD, mask_BT = prompt
        batch = embedding_BTD.shape[0]
        shape = self._shape(batch, whole * factor, width * factor)
        scheduler.set_timesteps(steps, device=self._device)
        self._rows.exchange = exchange
        patch = int(config.patch_size)
        self._rows.grid = (whole // patch, width // patch)
        try:
            for step, time in enumerate(scheduler.timesteps):
                exchange.begin(step)
                estimate = self._transformer(
                    latent.repeat(batch // len(seeds), 1, 1, 1),
                    encoder_hidden_states=embedding_BTD,
                    encoder_attention_mask=mask_BT,
                    timestep=time.expand(batch),
                    added_cond_kwargs=shape,
                ).sample[:, : config.in_channels]
                if guidance != 1:
                    empty, wanted = estimate.chunk(2)
                    estimate = empty + guidance * (wanted - empty)
                latent = scheduler.step(estimate, time, latent, eta=0.0).prev_sample
                done(step + 1)
            exchange.finish()
        finally:
            self._rows.exchange = RowExchange(0, 1, Drawing())
        return latent

    @torch.inference_mode()
    def images(self, latent: Tensor) -> list[Image]:
        """Returns the images of whole latents."""
        from PIL import Image

        decoded = self._vae.decode(latent / self._vae.config.scaling_factor).sample.float()
        levels = ((decoded / 2 + 0.5).clamp(0, 1) * 255).round().to("cpu", torch.uint8)
        return [Image.fromarray(each.permute(1, 2, 0).numpy()) for each in levels]

    def _shape(self, batch: int, height_px: int, width_px: int) -> dict[str, Tensor | None]:
        """Returns the size of the whole image as a condition, for models that take it."""
        if not self._transformer.use_additional_conditions:
            return {"resolution": None, "aspect_ratio": None}
        given = {"resolution": [[float(height_px), float(width_px)]], "aspect_ratio": [[height_px / width_px]]}
        return {
            name: torch.tensor(value, device=self._device, dtype=self._dtype).repeat(batch, 1)
            for name, value in given.items()
        }


class _Text:
    """Tokenizer and T5 encoder of a folder."""

    def __init__(self, folder: str, device: torch.device, dtype: torch.dtype) -> None:
        from transformers import AutoTokenizer, T5EncoderModel

        self._device = device
        self._tokenizer = AutoTokenizer.from_pretrained(folder, subfolder="tokenizer", local_files_only=True)
        encoder: Any = T5EncoderModel  # typed in part
        given = {"subfolder": "text_encoder", "local_files_only": True, "dtype": dtype}
        self._encoder = encoder.from_pretrained(folder, **given).to(device).eval()

    @torch.inference_mode()
    def encode(self, prompts: list[str]) -> tuple[Tensor, Tensor]:
        """Returns the embeddings of prompts and the masks of their tokens."""
        for prompt in prompts:
            count = len(self._tokenizer(prompt).input_ids)
            if count > PROMPT_TOKENS:
                raise DataError(f"the prompt has {count} tokens; allowed: {PROMPT_TOKENS}; shorten it")
        tokens = self._tokenizer(prompts, padding="max_length", max_length=PROMPT_TOKENS, return_tensors="pt")
        mask_BT = tokens.attention_mask.to(self._device)
        return self._encoder(tokens.input_ids.to(self._device), attention_mask=mask_BT)[0], mask_BT


def share_prompt(prompt: tuple[Tensor, Tensor] | None, device: str, precision: str, size: int) -> tuple[Tensor, Tensor]:
    """Returns the first member's embedding and mask at every member of a gang.

    Args:
        prompt: What the first member encoded; None at the others.
        device: Device of torch.
        precision: Type of the embedding.
        size: Workers of the gang.
    """
    if size == 1:
        assert prompt is not None
        return prompt
    shape = torch.zeros(3, dtype=torch.int64, device=device)
    if prompt is not None:
        shape = torch.tensor(prompt[0].shape, dtype=torch.int64, device=device)
    dist.broadcast(shape, 0)
    if prompt is None:
        whole = torch.Size(shape.tolist())
        prompt = (
            torch.empty(whole, dtype=getattr(torch, precision), device=device),
            torch.empty(whole[:2], dtype=torch.int64, device=device),
        )
    embedding_BTD, mask_BT = prompt[0].clone(), prompt[1].clone()
    dist.broadcast(embedding_BTD, 0)
    dist.broadcast(mask_BT, 0)
    return embedding_BTD, mask_BT


def whole_latent(own: Tensor, exchange: RowExchange) -> Tensor:
    """Returns the latent of the whole image from every member's rows."""
    if exchange.size == 1:
        return own
    all_PBCHW = own.new_empty((exchange.size, *own.shape))
    dist.all_gather(list(all_PBCHW), own.contiguous())
    return torch.cat(list(all_PBCHW), dim=2)


def _stand_in(prompt: str, channels: int) -> Tensor:
    """Returns an embedding drawn from a prompt's digest."""
    seed = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "big") >> 1
    return torch.randn((STAND_IN_TOKENS, channels), generator=torch.Generator().manual_seed(seed))
