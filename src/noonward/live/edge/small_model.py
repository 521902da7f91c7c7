"""A small image model of random weights: it draws nothing, but runs the code that real weights run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from noonward.files import whole_folder

GATE_SCALE: Final = 20.0
"""Scale of the gates of every block."""
QUERY_SCALE: Final = 6.0
"""Scale of the weights that make queries and keys."""
BETA_END: Final = 0.008
"""Last noise level of the schedule; 0.02 is usual."""


def write_small_model(folder: Path, *, seed: int = 0) -> None:
    """Writes a PixArt folder of 1.8 M random weights: 64 x 64 latents, images of 128 x 128 pixels, no text encoder.

    Gates, queries and keys are scaled up: with usual first weights a row of the image would hardly depend on the
    others, and an error in their exchange could not be seen. A milder noise schedule keeps latents small.

    Args:
        folder: Folder; appears whole.
        seed: Seed of the weights.
    """
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, PixArtTransformer2DModel

    with torch.random.fork_rng(), whole_folder(folder) as part:
        torch.manual_seed(seed)
        transformer: Any = PixArtTransformer2DModel(
            num_attention_heads=8,
            attention_head_dim=16,
            in_channels=4,
            out_channels=8,
            num_layers=6,
            cross_attention_dim=128,
            sample_size=64,
            patch_size=2,
            caption_channels=64,
            use_additional_conditions=False,
        )
        with torch.no_grad():
            for block in transformer.transformer_blocks:
                block.scale_shift_table.mul_(GATE_SCALE)
                block.attn1.to_q.weight.mul_(QUERY_SCALE)
                block.attn1.to_k.weight.mul_(QUERY_SCALE)
        vae: Any = AutoencoderKL(
            block_out_channels=(16, 32),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=4,
            norm_num_groups=8,
            layers_per_block=1,
            sample_size=128,
        )
        transformer.save_pretrained(part / "transformer")
        vae.save_pretrained(part / "vae")
        scheduler: Any = DDIMScheduler(beta_end=BETA_END)
        scheduler.save_pretrained(part / "scheduler")
