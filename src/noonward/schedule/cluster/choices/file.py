"""Files of choice-scoring policies: a scoring net, a price net, and how the policy uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field, FiniteFloat, StrictBool, StrictStr

from noonward.arrays import F4
from noonward.errors import DataError, ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.schedule import net_file
from noonward.schedule.cluster.choices.layout import INPUTS, PRICE_INPUTS

HEAD: Final = "choices"
"""What ``meta["head"]`` says of such a policy."""
NETS: Final = {"score": 3, "price": 2}
"""Layers of each net in a file."""
USE: Final = ("ask_s", "residual", "price_scale", "state_only")
"""Keys of ``meta`` that say how the policy uses its nets."""


class _Meta(net_file.Meta):
    """Types of what a file says about itself."""

    sites: list[StrictStr]
    forecast: dict[str, Any]
    ask_s: Annotated[FiniteFloat, Field(gt=0)]
    residual: StrictBool
    price_scale: FiniteFloat
    state_only: StrictBool


@dataclass(frozen=True)
class ChoiceNets:
    """The nets of a choice-scoring policy, as a file holds them: float32, weights [1, in, out] and biases [1, out].

    Attributes:
        weights: Weights of the scoring net's three layers.
        biases: Biases of its layers.
        price_weights: Weights of the price net's two layers.
        price_biases: Biases of its layers.
    """

    weights: tuple[F4, ...]
    biases: tuple[F4, ...]
    price_weights: tuple[F4, ...]
    price_biases: tuple[F4, ...]

    @property
    def flat(self) -> F4:
        """All weights and biases, layer by layer, those of the price net last."""
        pairs = (*zip(self.weights, self.biases, strict=True), *zip(self.price_weights, self.price_biases, strict=True))
        return np.concatenate([part.ravel() for pair in pairs for part in pair])

    def check(self, where: str) -> None:
        """Raises DataError unless the layers fit each other and are finite.

        Args:
            where: What they are, for messages.
        """
        for ins, weights, biases in (
            (INPUTS, self.weights, self.biases),
            (PRICE_INPUTS, self.price_weights, self.price_biases),
        ):
            for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                outs = 1 if layer == len(weights) - 1 else weight.shape[-1]
                if weight.shape != (1, ins, outs) or bias.shape != (1, outs):
                    raise DataError(
                        f"{where}: a layer has weights of shape {weight.shape} and biases of shape {bias.shape}; "
                        f"expected (1, {ins}, {outs}) and (1, {outs}); train and export the policy with this version"
                    )
                if weight.dtype != np.float32 or bias.dtype != np.float32:
                    raise DataError(
                        f"{where}: a layer is of type {weight.dtype} and {bias.dtype}; both must be float32"
                    )
                if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                    raise DataError(f"{where}: a layer holds a value that is not finite; the training diverged")
                ins = outs


def write_choice_policy(
    path: Path, weights: Sequence[F4], biases: Sequence[F4], meta: dict[str, Any], *, half: bool = False
) -> None:
    """Writes a choice-scoring policy, whole or not at all.

    Args:
        path: File, ``.npz``.
        weights: Weights of the scoring net's layers, then of the price net's, [1, in, out].
        biases: Biases of the same, [1, out].
        meta: ``algorithm``, ``head`` ("choices"), ``scenario``, ``protocol``, ``sites``, ``record``, ``forecast``
            (fields of Forecast) and the keys of ``USE``.
        half: Store float16.

    Raises:
        DataError: Something is missing or does not fit.
    """
    first = NETS["score"]
    nets = ChoiceNets(tuple(weights[:first]), tuple(biases[:first]), tuple(weights[first:]), tuple(biases[first:]))
    nets.check(str(path))
    missing = [name for name in (*USE, "forecast") if name not in meta]
    if missing:
        raise DataError(f"{path}: meta lacks {', '.join(missing)}; export the policy again")
    blocks = {
        "score": net_file.perceptron(nets.weights, nets.biases),
        "price": net_file.perceptron(nets.price_weights, nets.price_biases),
    }
    said = {name: value for name, value in meta.items() if name not in ("observation", "limits")}
    net_file.write_nets(path, blocks, {**said, "observation": {"kind": HEAD}}, half=half)


def read_choice_policy(path: Path) -> tuple[ChoiceNets, Forecast, dict[str, Any]]:
    """Returns nets, forecast and what the file says of a choice-scoring policy.

    Raises:
        DataError: The file is missing, damaged, of another format, or its parts do not fit.
    """
    found, meta = net_file.read_nets(path)
    net_file.check_meta(meta, _Meta, path)
    if {name: len(blocks) for name, blocks in found.items()} != NETS or any(
        block.type != "dense" for blocks in found.values() for block in blocks
    ):
        raise DataError(f"{path} holds no scoring net of three layers and price net of two; export the policy again")
    arrays = {
        name: tuple(tuple(block.arrays[part] for block in found[name]) for part in ("weight", "bias")) for name in NETS
    }
    nets = ChoiceNets(*arrays["score"], *arrays["price"])
    nets.check(str(path))
    try:
        forecast = Forecast(**meta["forecast"])
    except (TypeError, ValueError, ScenarioError) as error:
        raise DataError(f"{path}: unknown forecast: {error}; export it with this version") from error
    return nets, forecast, meta
