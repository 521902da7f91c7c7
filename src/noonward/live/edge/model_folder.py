"""Folders of image models in the layout of diffusers: what must be there, and which gangs can share an image."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from noonward.errors import DataError, ScenarioError

TRANSFORMER: Final = "PixArtTransformer2DModel"
"""The class of transformers that can be split by rows."""
PIPELINES: Final = ("FluxPipeline", "QwenImagePipeline", "StableDiffusion3Pipeline")
"""Pipelines of diffusers that draw as they are, in gangs by the library's context parallelism."""
LATENT_SIDE: Final = 128
"""Sides of a pipeline's own latents, where its configuration does not say."""
ONE_BLOCK: Final = [64]
"""What diffusers takes where the configuration of a VAE names no blocks."""
ROWS: Final = "rows of patches"
"""What a gang shares of a PixArt image."""


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """An image model.

    Attributes:
        name: Name by which tasks ask for it.
        path: Folder with ``transformer``, ``vae``, ``scheduler`` and, for prompts, ``text_encoder`` and ``tokenizer``;
            or that of a pipeline.
        rows: Rows of patches of an image, or what else a gang shares; gang sizes must divide them.
        text: Whether it has a text encoder.
        cell_px: Pixels of a patch's side; sides of images are multiples of it.
        own_px: Sides of its own images, pixels; None: those of its rows.
        shared: What ``rows`` counts.
    """

    name: str
    path: str
    rows: int
    text: bool
    cell_px: int = 16
    own_px: int | None = None
    shared: str = ROWS

    @property
    def side_px(self) -> int:
        """Sides of its own images, pixels."""
        return self.rows * self.cell_px if self.own_px is None else self.own_px


def read_model_folder(folder: Path, name: str | None = None) -> ModelFolder:
    """Returns a folder's model; reads its configuration, no weights.

    Args:
        folder: The folder.
        name: Name of the model; by default the folder's.

    Raises:
        DataError: The folder holds no model that this service can draw with.
    """
    if is_pipeline(folder):
        return _pipeline(folder, name)
    for part, file in (("transformer", "config.json"), ("vae", "config.json"), ("scheduler", "scheduler_config.json")):
        if not (folder / part / file).is_file():
            raise DataError(
                f"{folder} has no {part}/{file}; give a PixArt folder in the layout of diffusers, with transformer, "
                "vae and scheduler (and text_encoder and tokenizer for prompts), or a pipeline of "
                f"{', '.join(PIPELINES)}"
            )
    config = _json(folder / "transformer" / "config.json")
    if config.get("_class_name") != TRANSFORMER:
        raise DataError(f"{folder}: the transformer is a {config.get('_class_name')}; allowed: {TRANSFORMER}")
    try:
        rows = int(config.get("sample_size", 128)) // int(config.get("patch_size", 2))
    except (TypeError, ValueError) as error:
        raise DataError(f"{folder}/transformer/config.json: sample_size or patch_size is no number: {error}") from error
    blocks = _json(folder / "vae" / "config.json").get("block_out_channels", ONE_BLOCK)
    if not isinstance(blocks, list) or not blocks:
        raise DataError(f"{folder}/vae/config.json: block_out_channels is {blocks!r}; it must list the blocks")
    cell_px = int(config.get("patch_size", 2)) * 2 ** (len(blocks) - 1)
    text = [(folder / part).is_dir() for part in ("text_encoder", "tokenizer")]
    if text[0] != text[1]:
        raise DataError(f"{folder} has only one of text_encoder and tokenizer; prompts need both")
    return ModelFolder(
        name=name or folder.resolve().name, path=str(folder.resolve()), rows=rows, text=text[0], cell_px=cell_px
    )


def is_pipeline(folder: Path) -> bool:
    """Returns whether a folder holds a pipeline that draws as it is."""
    return pipeline_name(folder) in PIPELINES


def pipeline_name(folder: Path) -> str | None:
    """Returns the class of a folder's pipeline; None if it says none."""
    file = folder / "model_index.json"
    return _json(file).get("_class_name") if file.is_file() else None


def _pipeline(folder: Path, name: str | None) -> ModelFolder:
    """Returns a folder's pipeline.

    Raises:
        DataError: Its configuration is damaged.
    """
    transformer, vae = (_json(folder / part / "config.json") for part in ("transformer", "vae"))
    try:
        heads = int(transformer["num_attention_heads"])
        halvings = (
            len(vae["block_out_channels"]) - 1 if "block_out_channels" in vae else len(vae["temperal_downsample"])
        )
        side = int(transformer.get("sample_size") or LATENT_SIDE)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder}: the configuration of transformer or vae lacks {error}") from error
    return ModelFolder(
        name=name or folder.resolve().name,
        path=str(folder.resolve()),
        rows=heads,
        text=True,
        cell_px=2 * 2**halvings,
        own_px=side * 2**halvings,
        shared="attention heads",
    )


def require_gangs(model: ModelFolder, sizes: Iterable[int]) -> None:
    """Raises ScenarioError unless gangs of all sizes can share an image of a model evenly."""
    for size in sizes:
        if model.rows % size:
            allowed = ", ".join(str(n) for n in range(1, model.rows + 1) if model.rows % n == 0)
            raise ScenarioError(
                f"model {model.name!r} has {model.rows} {model.shared}, which a gang of {size} cannot share evenly; "
                f"allowed sizes in gang_times: {allowed}"
            )


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no JSON file: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no mapping; it is no configuration of diffusers")
    return content
