"""Pipelines of diffusers with a few thousand random weights, written to folders."""


def write_qwen(folder) -> None:
    """Writes a Qwen-Image pipeline."""
    import torch
    from diffusers import (
        AutoencoderKLQwenImage,
        FlowMatchEulerDiscreteScheduler,
        QwenImagePipeline,
        QwenImageTransformer2DModel,
    )
    from transformers import ByT5Tokenizer, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(0)
    text = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 2, "vocab_size": 384, "rope_theta": 1e6}
    text |= {"rope_scaling": {"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"}}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=AutoencoderKLQwenImage(
            base_dim=24,
            z_dim=4,
            dim_mult=[1, 2, 4],
            num_res_blocks=1,
            temperal_downsample=[False, True],
            latents_mean=[0.0] * 4,
            latents_std=[1.0] * 4,
        ),
        text_encoder=Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision)),
        tokenizer=ByT5Tokenizer(),
        transformer=QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            axes_dims_rope=(8, 4, 4),
        ),
    ).save_pretrained(folder)


def write_sd3(folder) -> None:
    """Writes a Stable Diffusion 3.5 pipeline."""
    import torch
    from diffusers import (
        FlowMatchEulerDiscreteScheduler,
        SD3Transformer2DModel,
        StableDiffusion3Pipeline,
    )
    from transformers import ByT5Tokenizer, CLIPTextConfig, CLIPTextModelWithProjection, T5Config, T5EncoderModel

    from noonward.live.edge.small_model import small_vae

    torch.manual_seed(0)
    clip = {"vocab_size": 384, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    clip |= {"num_attention_heads": 2, "projection_dim": 32}
    StableDiffusion3Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=small_vae(latent_channels=4),
        text_encoder=CLIPTextModelWithProjection(CLIPTextConfig(**clip)),
        tokenizer=ByT5Tokenizer(model_max_length=77),
        text_encoder_2=CLIPTextModelWithProjection(CLIPTextConfig(**clip)),
        tokenizer_2=ByT5Tokenizer(model_max_length=77),
        text_encoder_3=T5EncoderModel(T5Config(vocab_size=384, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2)),
        tokenizer_3=ByT5Tokenizer(model_max_length=77),
        transformer=SD3Transformer2DModel(
            sample_size=32,
            patch_size=1,
            in_channels=4,
            num_layers=1,
            attention_head_dim=8,
            num_attention_heads=4,
            caption_projection_dim=32,
            joint_attention_dim=32,
            pooled_projection_dim=64,
            out_channels=4,
        ),
    ).save_pretrained(folder)
