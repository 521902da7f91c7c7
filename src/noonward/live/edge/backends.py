"""The backend that draws with the model of a folder."""

from __future__ import annotations

from pathlib import Path

from noonward.live.edge.image_model import ImageModel
from noonward.live.edge.model_folder import is_pipeline


def load_model(folder: str, device: str, precision: str) -> ImageModel:
    """Returns the model of a folder: a pipeline of diffusers, or PixArt; arguments as ``ImageModel.load``."""
    if is_pipeline(Path(folder)):
        from noonward.live.edge.pipeline import Pipeline

        return Pipeline.load(folder, device, precision)
    from noonward.live.edge.pixart import PixArt

    return PixArt.load(folder, device, precision)
