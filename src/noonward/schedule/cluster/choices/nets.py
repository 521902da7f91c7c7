"""Small perceptrons in compiled rules: weights one after the other in one array, ReLU between the layers."""

from __future__ import annotations

from noonward.arrays import F4
from noonward.compiled import kernel


@kernel(inline=True, allocates=False)
def layer(weight_W: F4, at: int, ins: int, outs: int, x_I: F4, y_O: F4, rectified: bool) -> int:
    """Writes y = b + x W, with ReLU where rectified; returns where the next layer's weights begin.

    Args:
        weight_W: Weights, [in, out] row by row, then the biases.
        at: Where the layer's weights begin.
        ins: Inputs.
        outs: Outputs.
        x_I: What it is fed.
        y_O: Written.
        rectified: Whether negative outputs become 0.
    """
    bias_at = at + ins * outs
    for j in range(outs):
        y_O[j] = weight_W[bias_at + j]
    for i in range(ins):
        x = x_I[i]
        if x != 0.0:
            row_O = weight_W[at : at + outs]
            for j in range(outs):
                y_O[j] += x * row_O[j]
        at += outs
    if rectified:
        for j in range(outs):
            if y_O[j] < 0.0:
                y_O[j] = 0.0
    return bias_at + outs
