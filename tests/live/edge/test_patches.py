"""Patch parallelism: a gang draws the image of one worker, exactly when synchronous and nearly when displaced."""

import importlib.util
import io

import numpy as np
import pytest

from noonward.live.edge.orders import Drawing

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="the extra 'edge' is not installed"),
    pytest.mark.slow,
    pytest.mark.xdist_group("edge"),
]
SYNCHRONOUS = Drawing()
LAYERS, WIDTH = 6, 128
"""The small model's transformer."""
SMALL = {"sides_px": (64, 64)}
"""A quarter of the model's own size."""
STEPS = 8


@pytest.fixture(scope="session")
def alone(workers, small):
    """The latent that one worker draws."""
    workers.load(small)
    return workers.latent(1, SYNCHRONOUS, steps=STEPS, **SMALL)


def apart(found, wanted):
    """Returns the relative L2 difference."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("size", [2, 4])
def test_a_synchronous_gang_draws_the_image_of_one_worker(gang, alone, size):
    assert apart(gang.latent(size, SYNCHRONOUS, steps=STEPS, **SMALL), alone) <= 1e-5


@pytest.mark.parametrize("size", [2, 4])
def test_a_displaced_gang_draws_nearly_the_image_of_one_worker_and_nearer_after_a_longer_warm_up(gang, alone, size):
    late, early = (
        apart(gang.latent(size, Drawing(parallelism="displaced", warm_up=warm_up), steps=STEPS, **SMALL), alone)
        for warm_up in (4, 1)
    )
    assert 1e-3 < late <= 0.10
    assert late < early


def test_a_displaced_gang_draws_the_same_image_every_time(gang):
    given = {"drawing": Drawing(parallelism="displaced", warm_up=1), "steps": 4, **SMALL}
    assert np.array_equal(gang.latent(4, **given), gang.latent(4, **given))


def test_seed_prompt_steps_and_guidance_change_the_image(gang):
    given = {"drawing": SYNCHRONOUS, "steps": 3, **SMALL}
    usual = gang.latent(1, **given)
    for changed in ({"seed": 4}, {"prompt": "a harbour"}, {"steps": 4}, {"drawing": Drawing(guidance=3.0)}):
        assert apart(gang.latent(1, **{**given, **changed}), usual) > 1e-3, changed


def test_a_guided_gang_draws_the_image_of_one_guided_worker(gang):
    given = {"drawing": Drawing(guidance=3.0), "steps": 3, **SMALL}
    assert apart(gang.latent(2, **given), gang.latent(1, **given)) <= 1e-5


def test_images_that_are_drawn_at_once_are_those_that_are_drawn_alone_but_for_rounding(gang):
    """One step: the small model's weights are scaled up, so that rounding grows with every further one."""
    given = {"drawing": Drawing(guidance=3.0), "steps": 1, **SMALL}
    both = gang.latent(2, **given, more=[("a harbour", 9)])
    assert both.shape[0] == 2
    assert apart(both[:1], gang.latent(1, **given)) <= 1e-3
    other = gang.latent(1, **given, prompt="a harbour", seed=9)
    assert apart(both[1:], other) <= 1e-3
    assert apart(both[1:], gang.latent(1, **given, seed=9)) > 1e-2, "every image has its own prompt"


def test_a_gang_sends_the_keys_and_values_of_its_rows_to_every_other_member(gang):
    parts = gang.generate(4, SYNCHRONOUS, steps=3, **SMALL)
    assert {part.sent_bytes for part in parts} == {3 * LAYERS * 256 // 4 * 2 * WIDTH * 4 * 3}, "256 patches of 4 x 4"


def test_the_first_member_returns_a_png_that_names_prompt_seed_and_steps(gang):
    from PIL import Image

    first, second = gang.generate(2, SYNCHRONOUS, steps=1, prompt="ein Leuchtturm für Ümit")
    assert second.pngs == ()
    image = Image.open(io.BytesIO(first.pngs[0]))
    assert (image.size, image.text["prompt"]) == ((128, 128), "ein Leuchtturm für Ümit")
    assert (image.text["seed"], image.text["steps"], image.text["gang"]) == ("3", "1", "2")


def test_a_gang_keeps_its_group_for_the_next_image_and_leaves_it_for_another_gang(gang):
    gang.generate(1, SYNCHRONOUS, steps=1, **SMALL)
    first = gang.latent(4, SYNCHRONOUS, steps=1, **SMALL)
    assert [gang.call(n, "beat").groups for n in range(4)] == [1, 1, 1, 1]
    assert np.array_equal(gang.latent(4, SYNCHRONOUS, steps=1, **SMALL), first)
    gang.generate(1, SYNCHRONOUS, steps=1, **SMALL)
    assert gang.call(0, "beat").groups == 0


def test_a_gang_draws_the_image_of_one_worker_at_another_size_and_with_a_negative_prompt(gang):
    given = {"steps": 2, "sides_px": (48, 96), "negative": "fog"}
    guided = Drawing(guidance=3.0)
    alone = gang.latent(1, guided, **given)
    assert alone.shape == (1, 4, 48, 24)
    assert apart(gang.latent(4, guided, **given), alone) <= 1e-5
    assert apart(gang.latent(1, guided, **{**given, "negative": ""}), alone) > 1e-3


def test_a_model_has_a_size_of_its_own(gang):
    own = gang.latent(1, SYNCHRONOUS, steps=1)
    assert np.array_equal(gang.latent(1, SYNCHRONOUS, steps=1, sides_px=(128, 128)), own)
    assert np.array_equal(gang.latent(4, SYNCHRONOUS, steps=1), own)


def test_an_attempt_that_was_stopped_before_it_began_does_not_run(gang):
    gang.call(0, "leave", gang._attempt + 1)
    with pytest.raises(Exception, match="was stopped"):
        gang.generate(1, SYNCHRONOUS, steps=1, **SMALL)


@pytest.mark.parametrize("parallelism", ["synchronous", "displaced"])
def test_changing_gangs_leak_neither_memory_nor_groups(gang, parallelism):
    """Three steps: two more than the warm-up, so displaced gangs exchange what the step before computed."""
    drawing = Drawing(parallelism=parallelism, warm_up=1)

    def drawn():
        """Draws images, the last by all; returns what the workers hold then."""
        for size in (4, 1, 2, 1, 4, 2, 2, 1, 1, 4):
            gang.generate(size, drawing, steps=3, sides_px=(32, 32))
        return [(gang.call(n, "beat"), gang.call(n, "tensor_bytes")) for n in range(4)]

    before, after = drawn(), drawn()
    for (one, held), (two, holds) in zip(before, after, strict=True):
        assert (one.groups, two.groups) == (1, 1), "the process group of the last gang alone"
        assert two.descriptors <= one.descriptors + 4
        assert two.rss_mb < one.rss_mb + 40
        assert holds == held
