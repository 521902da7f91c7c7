"""The backend that draws with the model of a folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

from noonward.live.edge.image_model import ImageModel
from noonward.live.edge.model_folder import is_pipeline, pipeline_name

BY_XDIT: Final = "StableDiffusion3Pipeline"
"""Pipeline that xDiT splits among the servers of a gang; diffusers has no plan for it."""


def load_model(folder: str, device: str, precision: str) -> ImageModel:
    """Returns the model of a folder: a pipeline of diffusers, or PixArt; arguments as ``ImageModel.load``."""
    if not is_pipeline(Path(folder)):
        from noonward.live.edge.pixart import PixArt

        return PixArt.load(folder, device, precision)
    if is_split_by_xdit(Path(folder), device):
        from noonward.live.edge.xdit import XDiT

        return XDiT.load(folder, device, precision)
    from noonward.live.edge.pipeline import Pipeline

    return Pipeline.load(folder, device, precision)


def is_split_by_xdit(folder: Path, device: str) -> bool:
    """Returns whether gangs draw a folder's pipeline by xDiT: on CUDA, if the package ``xfuser`` is installed."""
    return device == "cuda" and pipeline_name(folder) == BY_XDIT and importlib.util.find_spec("xfuser") is not None
