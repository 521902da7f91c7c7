"""Pipelines of diffusers: known by their folders, drawn by workers alone and in gangs, the same image."""

import importlib.util
import io
import json

import numpy as np
import pytest

from live.edge.gangs import written
from live.edge.tiny_pipelines import write_qwen, write_sd3
from noonward.errors import DataError, ScenarioError
from noonward.live.edge import backends
from noonward.live.edge.model_folder import is_pipeline, read_model_folder, require_gangs
from noonward.live.edge.orders import Drawing
from noonward.live.edge.small_model import write_small_flux

needs_edge = pytest.mark.skipif(
    importlib.util.find_spec("diffusers") is None, reason="the extra 'edge' is not installed"
)
PLAIN = Drawing()


def _config(folder, part, **content):
    (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / part / "config.json").write_text(json.dumps(content))


def test_a_pipeline_is_known_by_its_configuration(tmp_path):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    _config(tmp_path, "transformer", num_attention_heads=24)
    _config(tmp_path, "vae", block_out_channels=[1, 2, 3, 4])
    model = read_model_folder(tmp_path, "flux")
    assert (model.name, model.rows, model.text, model.cell_px, model.side_px) == ("flux", 24, True, 16, 1024)
    require_gangs(model, (1, 2, 4, 8))
    with pytest.raises(ScenarioError, match="has 24 attention heads, which a gang of 5 cannot share evenly"):
        require_gangs(model, (5,))
    _config(tmp_path, "vae")
    with pytest.raises(DataError, match="transformer or vae lacks 'temperal_downsample'"):
        read_model_folder(tmp_path)
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "PixArtAlphaPipeline"}))
    assert not is_pipeline(tmp_path)


def test_gangs_draw_stable_diffusion_by_xdit_on_gpus_that_have_it(tmp_path, monkeypatch):
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusion3Pipeline"}))
    for there, device, expected in ((True, "cuda", True), (True, "cpu", False), (False, "cuda", False)):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, there=there: there or None)
        assert backends.is_split_by_xdit(tmp_path, device) == expected
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    assert not backends.is_split_by_xdit(tmp_path, "cuda")


@needs_edge
def test_the_last_member_of_an_xdit_gang_sends_its_images_to_all(monkeypatch):
    from types import SimpleNamespace

    from noonward.live.edge import xdit

    sent = []

    def broadcast(objects, src):
        sent.append((objects[0], src))
        objects[0] = ["image"]

    monkeypatch.setattr(xdit.dist, "broadcast_object_list", broadcast)
    model = xdit.XDiT.__new__(xdit.XDiT)
    model._size = 3
    for rank, result in ((0, None), (2, SimpleNamespace(images=["image"]))):
        monkeypatch.setattr(xdit.dist, "get_rank", lambda rank=rank: rank)
        assert model._images(result) == ["image"]
    assert sent == [(None, 2), (["image"], 2)]


def images(gang, size, **given):
    """Returns the images that a gang draws."""
    from PIL import Image

    given = {"drawing": PLAIN, "steps": 2, "sides_px": (32, 16), **given}
    found = [Image.open(io.BytesIO(png)) for png in gang.generate(size, **given)[0].pngs]
    assert (found[0].size, found[0].text["gang"]) == (given["sides_px"], str(size))
    assert found[0].text["seed"] == str(given.get("seed", 3))
    return [np.asarray(each, dtype=float) for each in found]


@needs_edge
@pytest.mark.slow
@pytest.mark.xdist_group("edge")
def test_stable_diffusion_draws_alone_and_says_that_diffusers_cannot_split_it(workers, tmp_path):
    workers.load(written(tmp_path / "model", write_sd3))
    given = {"drawing": Drawing(guidance=4.0), "prompt": "a boat", "negative": "fog"}
    (usual,) = images(workers, 1, **given)
    assert workers.call(0, "beat").step == 2
    for other in ({"prompt": "a house"}, {"negative": "a dog"}):
        assert not np.array_equal(images(workers, 1, **{**given, **other})[0], usual)
    with pytest.raises(DataError, match="cannot split a SD3Transformer2DModel among the servers of a gang"):
        workers.generate(2, **given)


@needs_edge
@pytest.mark.slow
@pytest.mark.xdist_group("edge")
@pytest.mark.parametrize("write", [write_small_flux, write_qwen], ids=["flux", "qwen"])
def test_a_gang_draws_the_image_of_one_worker(workers, tmp_path, write):
    workers.load(written(tmp_path / "model", write))

    def image(size, **given):
        return images(workers, size, sides_px=(64, 32), **given)[0]

    alone = image(1)
    assert np.abs(image(2) - alone).max() <= 1
    assert np.array_equal(image(1), alone), "a worker that was in a gang draws alone as before"
    assert not np.array_equal(image(1, seed=4), alone)
    foggy = {"drawing": Drawing(guidance=5.0), "negative": "fog"}
    fog = image(1, **foggy)
    assert not np.array_equal(fog, image(1, **{**foggy, "negative": "a harbour at night"}))
    assert np.abs(image(2, **foggy) - fog).max() <= 1
    both = images(workers, 1, sides_px=(64, 32), **foggy, more=[("a very small boat in the fog", 9)])
    other = image(1, **foggy, prompt="a very small boat in the fog", seed=9)
    assert np.abs(both[0] - fog).max() <= 1, "images that are drawn at once are those that are drawn alone"
    assert np.abs(both[1] - other).max() <= 1
    assert np.abs(fog - other).max() > 10
