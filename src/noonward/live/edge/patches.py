"""Patch parallelism: each worker of a gang computes some rows of an image and attends to all of them.

A diffusion transformer mixes rows in self-attention alone, so a worker needs the keys and values of the others' rows
and nothing else of them. *Synchronous*: they are gathered in every layer of every step; the result equals that of one
worker. *Displaced* (DistriFusion, Li et al. 2024): after some warm-up steps a worker uses the others' keys and values
of the step before, which have travelled while it computed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from noonward.live.edge.orders import Drawing


class RowExchange:
    """Keys and values of all rows, gathered from the workers of the process group.

    Args:
        rank: Number of this worker in its gang.
        size: Workers of the gang.
        drawing: Whether exchanges are displaced, and after how many steps.
    """

    def __init__(self, rank: int, size: int, drawing: Drawing) -> None:
        self.rank, self.size = rank, size
        self._displaced, self._warm_up = drawing.parallelism == "displaced", drawing.warm_up
        self._step = 0
        self._ready: dict[int, Tensor] = {}
        """Keys and values of all workers by layer, of the last step whose exchange is complete."""
        self._spare: dict[int, Tensor] = {}
        """Room of exchanges that have been read, by layer."""
        self._coming: dict[int, tuple[Any, Tensor, Tensor]] = {}
        """Exchanges under way by layer: handle, where they arrive, and what is sent (kept until it has left)."""
        self.sent_bytes = 0

    def begin(self, step: int) -> None:
        """Begins an inference step, counted from 0."""
        self._step = step

    def gather(self, layer: int, own_BTD: Tensor) -> Tensor:
        """Returns the keys and values of all rows.

        Args:
            layer: Number of the layer.
            own_BTD: Those of this worker's rows: batch, tokens, keys and values side by side.
        """
        if self.size == 1:
            return own_BTD
        own_BTD = own_BTD.contiguous()
        self.sent_bytes += own_BTD.nbytes * (self.size - 1)
        if not self._displaced or self._step < max(self._warm_up, 1):
            all_PBTD = self._room(self._ready, layer, own_BTD)
            dist.all_gather(list(all_PBTD), own_BTD)
            self._ready[layer] = all_PBTD
        else:
            self._arrive(layer)
            all_PBTD, coming_PBTD = self._ready[layer], self._room(self._spare, layer, own_BTD)
            all_PBTD[self.rank] = own_BTD
            handle = dist.all_gather(list(coming_PBTD), own_BTD, async_op=True)
            self._coming[layer] = (handle, coming_PBTD, own_BTD)
        return all_PBTD.transpose(0, 1).flatten(1, 2)

    def finish(self) -> None:
        """Waits for the exchanges under way, so that the group can be dissolved."""
        for layer in list(self._coming):
            self._arrive(layer)

    def _arrive(self, layer: int) -> None:
        """Waits for a layer's exchange of the step before."""
        if layer in self._coming:
            handle, coming_PBTD, _ = self._coming.pop(layer)
            handle.wait()
            self._spare[layer], self._ready[layer] = self._ready[layer], coming_PBTD

    def _room(self, kept: dict[int, Tensor], layer: int, own_BTD: Tensor) -> Tensor:
        """Returns room for everybody's keys and values: that of an exchange which nobody reads any longer, or new."""
        return kept.pop(layer) if layer in kept else own_BTD.new_empty((self.size, *own_BTD.shape))


class RowAttention:
    """Self-attention of one layer: queries of the own rows, keys and values of all.

    With a gang of one it computes what the library's own processor computes, bit for bit.

    Args:
        layer: Number of the layer.
        rows: Rows of the transformer it belongs to.
    """

    def __init__(self, layer: int, rows: Rows) -> None:
        self._layer, self._rows = layer, rows

    def __call__(self, attn: Any, hidden_states: Tensor, **unused: Any) -> Tensor:
        """Returns the layer's output for the own rows."""
        query = attn.to_q(hidden_states)
        own_BTD = torch.cat([attn.to_k(hidden_states), attn.to_v(hidden_states)], dim=-1)
        key, value = self._rows.exchange.gather(self._layer, own_BTD).chunk(2, dim=-1)
        query, key, value = (x.unflatten(-1, (attn.heads, -1)).transpose(1, 2) for x in (query, key, value))
        mixed = scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2).to(query.dtype)
        out: Tensor = attn.to_out[1](attn.to_out[0](mixed))
        return out / attn.rescale_output_factor


class RowPositions(nn.Module):
    """Embeds the patches of a worker's rows with the positions that they have in the whole image.

    Args:
        embed: The transformer's own embedding.
        rows: Rows of the transformer it belongs to.
    """

    def __init__(self, embed: Any, rows: Rows) -> None:
        super().__init__()
        self.embed, self._rows = embed, rows

    def forward(self, latent: Tensor) -> Tensor:
        """Returns the tokens of the own rows."""
        tokens = self.embed.proj(latent).flatten(2).transpose(1, 2)
        count, first = tokens.shape[1], self._rows.exchange.rank * tokens.shape[1]
        placed: Tensor = (tokens + self._positions()[:, first : first + count]).to(tokens.dtype)
        return placed

    def _positions(self) -> Tensor:
        """Returns the positions of the whole image: the embedding's own, or those of another size, as it makes them."""
        embed, grid = self.embed, self._rows.grid
        own: Tensor = embed.pos_embed
        if grid is None or grid == (embed.height, embed.width):
            return own
        from diffusers.models.embeddings import get_2d_sincos_pos_embed

        made: Tensor = get_2d_sincos_pos_embed(
            embed_dim=own.shape[-1],
            grid_size=grid,
            base_size=embed.base_size,
            interpolation_scale=embed.interpolation_scale,
            device=own.device,
            output_type="pt",
        )
        return made.float().unsqueeze(0)


class Rows:
    """Splits a PixArt transformer by rows; which rows are computed is set for every image.

    Args:
        transformer: ``PixArtTransformer2DModel``; its embedding and self-attention are replaced.
    """

    def __init__(self, transformer: Any) -> None:
        self.exchange = RowExchange(0, 1, Drawing())
        self.grid: tuple[int, int] | None = None
        """Rows and columns of patches of the whole image; None: the model's own."""
        for layer, block in enumerate(transformer.transformer_blocks):
            block.attn1.set_processor(RowAttention(layer, self))
        transformer.pos_embed = RowPositions(transformer.pos_embed, self)
