"""Measured power caps: what share of full throughput GPUs keep at a share of their full power."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from noonward.model.spec import Spec

CapShare = Annotated[float, Field(gt=0, le=1)]
MOST_POINTS: Final = 16
"""Points of a curve, at most."""


class CapCurve(Spec):
    """Throughput under power caps, both as shares of those without a cap; the last point is full power.

    Between two points a job may run at one for a part of the time and at the other for the rest.
    """

    power: tuple[CapShare, ...] = Field(min_length=1, max_length=MOST_POINTS)
    """GPU power over full power, ascending, above 0; the last is 1."""
    throughput: tuple[CapShare, ...] = Field(min_length=1, max_length=MOST_POINTS)
    """Throughput over full throughput at each, not falling, above 0; the last is 1."""

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if len(self.power) != len(self.throughput):
            raise ValueError(
                f"{len(self.power)} shares of power have {len(self.throughput)} of throughput; give one each"
            )
        if list(self.power) != sorted(set(self.power)) or list(self.throughput) != sorted(self.throughput):
            raise ValueError(
                f"power {list(self.power)} must ascend and throughput {list(self.throughput)} must not fall"
            )
        if self.power[-1] != 1 or self.throughput[-1] != 1:
            raise ValueError(
                f"the last point is power {self.power[-1]:g} and throughput {self.throughput[-1]:g}; it must be full "
                "power, 1 and 1"
            )
        return self


_EMERALD: Final = "Emerald AI, ai-emerald/emerald-ai-demo-may-2025, dvfs_sweep.csv (Apache-2.0)"
_ZEUS: Final = "Zeus, ml-energy/zeus, power-limit trace (Apache-2.0)"


class CapTable(Spec):
    """A curve that was measured."""

    gpu: str
    """GPU it was measured on."""
    workload: str
    """Workload it was measured with, and the caps in W."""
    source: str
    """Where the measurements were published, with their license."""
    curve: CapCurve
    """The curve, rounded to three digits."""


def _table(gpu: str, workload: str, source: str, power: tuple[float, ...], throughput: tuple[float, ...]) -> CapTable:
    return CapTable(gpu=gpu, workload=workload, source=source, curve=CapCurve(power=power, throughput=throughput))


CAP_TABLES: Final = {
    "emerald-a100-fine-tuning": _table(
        "A100", "fine-tuning Llama 8B; 100, 200, 250, 300, 350, 400 W", _EMERALD,
        (0.292, 0.569, 0.698, 0.832, 0.923, 1.0), (0.228, 0.784, 0.878, 0.938, 0.967, 1.0),
    ),
    "emerald-a100-batch-inference": _table(
        "A100", "batch inference with Llama 8B; 100, 200, 250, 300, 350, 400 W", _EMERALD,
        (0.266, 0.528, 0.656, 0.784, 0.904, 1.0), (0.225, 0.781, 0.871, 0.931, 0.976, 1.0),
    ),
    "emerald-a100-pretraining-7b": _table(
        "A100", "pre-training MPT 7B; 100, 200, 250, 300, 350, 400 W", _EMERALD,
        (0.258, 0.512, 0.638, 0.762, 0.885, 1.0), (0.175, 0.626, 0.787, 0.874, 0.935, 1.0),
    ),
    "emerald-a100-pretraining-13b": _table(
        "A100", "pre-training MPT 13B; 100, 200, 250, 300, 350, 400 W", _EMERALD,
        (0.267, 0.514, 0.641, 0.763, 0.883, 1.0), (0.191, 0.624, 0.781, 0.860, 0.921, 1.0),
    ),
    "zeus-v100-resnet50": _table(
        "V100", "training ResNet-50, batch 360; 100 to 250 W by 25 W", _ZEUS,
        (0.454, 0.551, 0.661, 0.759, 0.834, 0.932, 1.0), (0.516, 0.684, 0.842, 0.914, 0.95, 0.982, 1.0),
    ),
    "zeus-v100-bert": _table(
        "V100", "training BERT base on SQuAD, batch 56; 100 to 250 W by 25 W", _ZEUS,
        (0.449, 0.524, 0.646, 0.746, 0.832, 0.929, 1.0), (0.469, 0.599, 0.759, 0.881, 0.937, 0.977, 1.0),
    ),
    "zeus-a40-resnet50": _table(
        "A40", "training ResNet-50, batch 512; 100 to 300 W by 25 W", _ZEUS,
        (0.509, 0.535, 0.608, 0.673, 0.749, 0.824, 0.891, 0.952, 1.0),
        (0.344, 0.385, 0.606, 0.854, 0.923, 0.979, 0.994, 0.997, 1.0),
    ),
    "zeus-a40-bert": _table(
        "A40", "training BERT base on SQuAD, batch 72; 100 to 300 W by 25 W", _ZEUS,
        (0.415, 0.462, 0.547, 0.628, 0.708, 0.79, 0.867, 0.946, 1.0),
        (0.256, 0.365, 0.537, 0.726, 0.906, 0.941, 0.982, 1.0, 1.0),
    ),
    "zeus-rtx6000-resnet50": _table(
        "RTX 6000", "training ResNet-50, batch 256; 100 to 250 W by 25 W, 260 W", _ZEUS,
        (0.429, 0.528, 0.617, 0.708, 0.795, 0.883, 0.967, 1.0), (0.403, 0.686, 0.824, 0.9, 0.943, 0.973, 0.993, 1.0),
    ),
    "zeus-rtx6000-bert": _table(
        "RTX 6000", "training BERT base on SQuAD, batch 32; 100 to 250 W by 25 W, 260 W", _ZEUS,
        (0.413, 0.506, 0.601, 0.694, 0.785, 0.877, 0.967, 1.0), (0.368, 0.625, 0.772, 0.859, 0.922, 0.963, 0.995, 1.0),
    ),
    "zeus-p100-resnet50": _table(
        "P100", "training ResNet-50, batch 128; 125 to 250 W by 25 W", _ZEUS,
        (0.681, 0.771, 0.866, 0.937, 0.988, 1.0), (0.875, 0.94, 0.973, 0.993, 0.999, 1.0),
    ),
    "zeus-p100-bert": _table(
        "P100", "training BERT base on SQuAD, batch 24; 125 to 225 W by 25 W (250 W was no faster)", _ZEUS,
        (0.652, 0.749, 0.874, 0.952, 1.0), (0.85, 0.908, 0.966, 0.995, 1.0),
    ),
}  # fmt: skip
"""Measured curves by name: small tables of facts out of the repositories named."""
