"""Patch parallelism: a gang draws the image of one worker, exactly when synchronous and nearly when displaced."""

import importlib.util
import io

import numpy as np
import pytest

from live.edge.gangs import gang_of
from noonward.live.edge.orders import Drawing

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="the extra 'edge' is not installed"),
    pytest.mark.slow,
    pytest.mark.xdist_group("edge"),
]
SYNCHRONOUS = Drawing()
LAYERS, TOKENS, WIDTH = 6, 1024, 128
"""The small model's transformer."""


@pytest.fixture(scope="module")
def gang(tmp_path_factory):
    """Four workers with the small model."""
    with gang_of(4, tmp_path_factory.mktemp("models") / "small") as started:
        yield started


@pytest.fixture(scope="module")
def alone(gang):
    """The latent that one worker draws in 20 steps."""
    return gang.latent(1, SYNCHRONOUS, steps=20)


def apart(found, wanted):
    """Returns the relative L2 difference."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("size", [2, 4])
def test_a_synchronous_gang_draws_the_image_of_one_worker(gang, alone, size):
    assert apart(gang.latent(size, SYNCHRONOUS, steps=20), alone) <= 1e-5


@pytest.mark.parametrize("size", [2, 4])
def test_a_displaced_gang_draws_nearly_the_image_of_one_worker_and_nearer_after_a_longer_warm_up(gang, alone, size):
    late, early = (
        apart(gang.latent(size, Drawing(parallelism="displaced", warm_up=warm_up), steps=20), alone)
        for warm_up in (4, 1)
    )
    assert 1e-3 < late <= 0.10
    assert late < early


def test_a_displaced_gang_draws_the_same_image_every_time(gang):
    drawing = Drawing(parallelism="displaced", warm_up=1)
    assert np.array_equal(gang.latent(4, drawing, steps=6), gang.latent(4, drawing, steps=6))


def test_seed_prompt_steps_and_guidance_change_the_image(gang):
    usual = gang.latent(1, SYNCHRONOUS, steps=4)
    for changed in ({"seed": 4}, {"prompt": "a harbour"}, {"steps": 5}, {"drawing": Drawing(guidance=3.0)}):
        assert apart(gang.latent(1, **{"drawing": SYNCHRONOUS, "steps": 4, **changed}), usual) > 1e-3, changed


def test_a_guided_gang_draws_the_image_of_one_guided_worker(gang):
    guided = Drawing(guidance=3.0)
    assert apart(gang.latent(2, guided, steps=4), gang.latent(1, guided, steps=4)) <= 1e-5


def test_images_that_are_drawn_at_once_are_those_that_are_drawn_alone_but_for_rounding(gang):
    """One step: the small model's weights are scaled up, so that rounding grows with every further one."""
    guided = Drawing(guidance=3.0)
    both = gang.latent(2, guided, steps=1, more=[("a harbour", 9)])
    assert both.shape[0] == 2
    assert apart(both[:1], gang.latent(1, guided, steps=1)) <= 1e-3
    other = gang.latent(1, guided, steps=1, prompt="a harbour", seed=9)
    assert apart(both[1:], other) <= 1e-3
    assert apart(both[1:], gang.latent(1, guided, steps=1, seed=9)) > 1e-2, "every image has its own prompt"


def test_a_gang_sends_the_keys_and_values_of_its_rows_to_every_other_member(gang):
    parts = gang.generate(4, SYNCHRONOUS, steps=3)
    assert {part.sent_bytes for part in parts} == {3 * LAYERS * TOKENS // 4 * 2 * WIDTH * 4 * 3}


def test_the_first_member_returns_a_png_that_names_prompt_seed_and_steps(gang):
    from PIL import Image

    first, second = gang.generate(2, SYNCHRONOUS, steps=2, prompt="ein Leuchtturm für Ümit")
    assert second.pngs == ()
    image = Image.open(io.BytesIO(first.pngs[0]))
    assert (image.size, image.text["prompt"]) == ((128, 128), "ein Leuchtturm für Ümit")
    assert (image.text["seed"], image.text["steps"], image.text["gang"]) == ("3", "2", "2")


def test_a_gang_keeps_its_group_for_the_next_image_and_leaves_it_for_another_gang(gang):
    gang.generate(1, SYNCHRONOUS, steps=1)
    first = gang.latent(4, SYNCHRONOUS, steps=2)
    assert [gang.call(n, "beat").groups for n in range(4)] == [1, 1, 1, 1]
    assert np.array_equal(gang.latent(4, SYNCHRONOUS, steps=2), first)
    gang.generate(1, SYNCHRONOUS, steps=1)
    assert gang.call(0, "beat").groups == 0


def test_a_gang_draws_the_image_of_one_worker_at_another_size_and_with_a_negative_prompt(gang):
    given = {"steps": 3, "sides_px": (96, 192), "negative": "fog"}
    guided = Drawing(guidance=3.0)
    alone = gang.latent(1, guided, **given)
    assert alone.shape == (1, 4, 96, 48)
    assert apart(gang.latent(4, guided, **given), alone) <= 1e-5
    assert apart(gang.latent(1, guided, **{**given, "negative": ""}), alone) > 1e-3
    own = gang.latent(1, SYNCHRONOUS, steps=3)
    assert np.array_equal(gang.latent(1, SYNCHRONOUS, steps=3, sides_px=(128, 128)), own)


def test_an_attempt_that_was_stopped_before_it_began_does_not_run(gang):
    gang.call(0, "leave", gang._attempt + 1)
    with pytest.raises(Exception, match="was stopped"):
        gang.generate(1, SYNCHRONOUS, steps=1)
