"""Small image models of random weights: they draw nothing, but run the code that real weights run."""

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


def small_vae(*, latent_channels: int) -> Any:
    """Returns an image autoencoder of a few random weights, as Flux and Stable Diffusion 3.5 have them."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        sample_size=32,
        block_out_channels=(4,),
        layers_per_block=1,
        latent_channels=latent_channels,
        norm_num_groups=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.06,
        scaling_factor=1.5,
    )


def write_small_flux(folder: Path, *, seed: int = 0) -> None:
    """Writes a Flux pipeline of a few thousand random weights, with its text encoders.

    Args:
        folder: Folder; appears whole.
        seed: Seed of the weights.
    """
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import ByT5Tokenizer, CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

    with torch.random.fork_rng(), whole_folder(folder) as part:
        torch.manual_seed(seed)
        t5 = T5Config(vocab_size=384, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
        made: Any = FluxPipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(),
            vae=small_vae(latent_channels=1),
            text_encoder=CLIPTextModel(
                CLIPTextConfig(
                    vocab_size=384,
                    hidden_size=32,
                    intermediate_size=32,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    projection_dim=32,
                )
            ),
            tokenizer=ByT5Tokenizer(model_max_length=77),
            text_encoder_2=T5EncoderModel(t5),
            tokenizer_2=ByT5Tokenizer(model_max_length=77),
            transformer=FluxTransformer2DModel(
                patch_size=1,
                in_channels=4,
                num_layers=1,
                num_single_layers=1,
                attention_head_dim=16,
                num_attention_heads=2,
                joint_attention_dim=32,
                pooled_projection_dim=32,
                axes_dims_rope=(4, 4, 8),
            ),
        )
        made.save_pretrained(part)
