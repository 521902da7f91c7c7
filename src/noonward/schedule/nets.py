"""Nets in compiled rules: weights one after the other in one array; every forward pass is made of these functions."""

from __future__ import annotations

from noonward.arrays import F4, F8
from noonward.compiled import kernel


@kernel(inline=True, allocates=False)
def set_bias(weight_W: F4 | F8, at: int, y_O: F4 | F8, outs: int) -> None:
    """Writes a bias.

    Args:
        weight_W: Weights.
        at: Where the bias begins.
        y_O: Written.
        outs: Outputs.
    """
    for j in range(outs):
        y_O[j] = weight_W[at + j]


@kernel(inline=True, allocates=False)
def add_product(weight_W: F4 | F8, at: int, x_I: F4 | F8, ins: int, y_O: F4 | F8, outs: int) -> None:
    """Adds ``x W`` to y.

    Args:
        weight_W: Weights.
        at: Where W begins, [in, out] row by row.
        x_I: What it is fed.
        ins: Inputs.
        y_O: Written.
        outs: Outputs.
    """
    for i in range(ins):
        x = x_I[i]
        if x != 0.0:
            row_O = weight_W[at : at + outs]
            for j in range(outs):
                y_O[j] += x * row_O[j]
        at += outs


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
    set_bias(weight_W, bias_at, y_O, outs)
    add_product(weight_W, at, x_I, ins, y_O, outs)
    if rectified:
        for j in range(outs):
            if y_O[j] < 0.0:
                y_O[j] = 0.0
    return bias_at + outs
