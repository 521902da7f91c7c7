"""The image model: equal to the library's own transformer, prompts by a text encoder, folders checked before use."""

import importlib.util
import json

import pytest

from noonward.errors import DataError, ScenarioError
from noonward.live.edge.model_folder import ModelFolder, read_model_folder, require_gangs
from noonward.live.edge.orders import Picture

needs_edge = pytest.mark.skipif(
    importlib.util.find_spec("diffusers") is None, reason="the extra 'edge' is not installed"
)


def picture(prompt):
    return Picture(task="test", prompt=prompt, negative="", seed=1)


@needs_edge
@pytest.mark.slow
@pytest.mark.xdist_group("edge")
def test_split_attention_of_one_worker_equals_the_library_bit_for_bit(small):
    import torch
    from diffusers import PixArtTransformer2DModel

    from noonward.live.edge.patches import Rows

    model = PixArtTransformer2DModel.from_pretrained(small, subfolder="transformer").eval()
    given = {
        "encoder_hidden_states": torch.randn(2, 16, 64),
        "timestep": torch.tensor([500, 500]),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }
    latent = torch.randn(2, 4, 64, 64)
    with torch.inference_mode():
        plain = model(latent, **given).sample
        Rows(model)
        assert torch.equal(model(latent, **given).sample, plain)


@needs_edge
@pytest.mark.slow
@pytest.mark.xdist_group("edge")
def test_the_small_model_is_written_the_same_every_time(small, tmp_path):
    from noonward.live.edge.small_model import write_small_model

    write_small_model(tmp_path / "again")
    write_small_model(tmp_path / "other", seed=1)
    weights = [
        (folder / "transformer" / "diffusion_pytorch_model.safetensors").read_bytes()
        for folder in (small, tmp_path / "again", tmp_path / "other")
    ]
    assert weights[0] == weights[1] != weights[2]


@needs_edge
@pytest.mark.slow
@pytest.mark.xdist_group("edge")
def test_a_folder_with_a_text_encoder_encodes_prompts_with_it(small, tmp_path):
    import shutil

    import torch
    from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

    from noonward.live.edge.orders import Drawing
    from noonward.live.edge.patches import RowExchange
    from noonward.live.edge.pixart import GUIDANCE, PixArt

    folder = tmp_path / "with-text"
    shutil.copytree(small, folder)
    config = T5Config(vocab_size=384, d_model=64, d_kv=16, d_ff=64, num_layers=1, num_heads=4)
    T5EncoderModel(config).save_pretrained(folder / "text_encoder")
    ByT5Tokenizer().save_pretrained(folder / "tokenizer")
    assert read_model_folder(folder).text
    model = PixArt(str(folder))
    assert model.guidance(Drawing()) == GUIDANCE
    embedding, mask = model.encode([picture("a boat")], GUIDANCE)
    assert embedding.shape == (2, 120, 64)
    assert mask.sum(dim=1).tolist() == [1, 7]
    latent = model.denoise(RowExchange(0, 1, Drawing()), (embedding, mask), [1], 2, GUIDANCE)
    assert torch.isfinite(latent).all()
    with pytest.raises(DataError, match="has 201 tokens; allowed: 120"):
        model.encode([picture("x" * 200)], 1.0)


@needs_edge
@pytest.mark.slow
@pytest.mark.xdist_group("edge")
def test_a_model_that_takes_the_size_of_the_image_gets_it(small, tmp_path):
    import shutil

    import torch
    from diffusers import PixArtTransformer2DModel

    from noonward.live.edge.orders import Drawing
    from noonward.live.edge.patches import RowExchange
    from noonward.live.edge.pixart import PixArt

    folder = tmp_path / "sized"
    shutil.copytree(small, folder)
    config = json.loads((folder / "transformer" / "config.json").read_text())
    config |= {"use_additional_conditions": True, "attention_head_dim": 24, "cross_attention_dim": 192}
    PixArtTransformer2DModel.from_config(config).save_pretrained(folder / "transformer")
    model = PixArt(str(folder))
    shape = model._shape(1, 96, 128)
    assert (shape["resolution"].tolist(), shape["aspect_ratio"].tolist()) == ([[96.0, 128.0]], [[0.75]])
    latent = model.denoise(RowExchange(0, 1, Drawing()), model.encode([picture("a boat")], 1.0), [1], 2, 1.0)
    assert torch.isfinite(latent).all()


def _folder(path, transformer="PixArtTransformer2DModel", **config):
    for part, file in (("transformer", "config.json"), ("vae", "config.json"), ("scheduler", "scheduler_config.json")):
        (path / part).mkdir(parents=True)
        (path / part / file).write_text('{"block_out_channels": [1, 2, 3, 4]}')
    content = {"_class_name": transformer, "sample_size": 64, "patch_size": 2, **config}
    (path / "transformer" / "config.json").write_text(json.dumps(content))
    return path


def test_a_folder_is_known_by_its_configuration(tmp_path):
    model = read_model_folder(_folder(tmp_path / "tiny"))
    assert (model.name, model.rows, model.text, model.cell_px, model.side_px) == ("tiny", 32, False, 16, 512)


def test_a_folder_without_an_image_model_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no transformer/config.json; give a PixArt folder"):
        read_model_folder(tmp_path)
    with pytest.raises(DataError, match="is a SanaTransformer2DModel; allowed: PixArtTransformer2DModel"):
        read_model_folder(_folder(tmp_path / "sana", "SanaTransformer2DModel"))
    with pytest.raises(DataError, match="sample_size or patch_size is no number"):
        read_model_folder(_folder(tmp_path / "odd", sample_size="big"))
    (_folder(tmp_path / "flat") / "vae" / "config.json").write_text('{"block_out_channels": 3}')
    with pytest.raises(DataError, match="block_out_channels is 3"):
        read_model_folder(tmp_path / "flat")
    (_folder(tmp_path / "half") / "tokenizer").mkdir()
    with pytest.raises(DataError, match="only one of text_encoder and tokenizer"):
        read_model_folder(tmp_path / "half")
    (tmp_path / "half" / "transformer" / "config.json").write_text("[")
    with pytest.raises(DataError, match="is no JSON file"):
        read_model_folder(tmp_path / "half")


def test_gangs_that_cannot_share_an_image_evenly_are_refused():
    model = ModelFolder(name="tiny", path="/nowhere", rows=32, text=False)
    require_gangs(model, (1, 2, 4, 8))
    with pytest.raises(ScenarioError, match=r"32 rows of patches, which a gang of 3 cannot share evenly; .* 1, 2, 4"):
        require_gangs(model, (1, 3))
