"""Named random streams: the same for the same words, apart for any other, and never global."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from noonward.seeding import STREAMS, stream

KEYS = [
    (0, "workload"), (1, "workload"), (2**40, "workload"), (0, "world"), (0, "policy"), (0, "learner"), (0, "forecast"),
    (0, "workload", 0), (0, "workload", 1), (0, "workload", 0, 0), (0, "workload", "SG"), (0, "workload", "GS"),
    (0, "world", "day", 3), (0, "world", 3, "day"),
]  # fmt: skip


def draws(*key):
    return stream(*key).integers(0, 2**63, 4).tolist()


@pytest.mark.parametrize("key", KEYS)
def test_the_same_words_give_the_same_stream(key):
    assert draws(*key) == draws(*key)


def test_any_other_word_gives_another_stream():
    streams = [draws(*key) for key in KEYS]
    assert all(one != other for one, other in itertools.combinations(streams, 2))


def test_a_stream_is_the_named_child_of_the_seeds_sequence():
    children = np.random.SeedSequence(7).spawn(len(STREAMS))
    for name, child in zip(STREAMS, children, strict=True):
        assert stream(7, name).bit_generator.state == np.random.PCG64(child).state


def test_streams_of_one_run_are_uncorrelated():
    samples = np.array([stream(3, name, 0).standard_normal(4000) for name in STREAMS])
    correlation = np.corrcoef(samples) - np.eye(len(STREAMS))
    assert np.abs(correlation).max() < 0.08  # five standard errors


def test_words_do_not_depend_on_the_process():
    code = "from noonward.seeding import stream; print(stream(0, 'world', 'SG').integers(0, 2**63, 4).tolist())"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert answers == {str(draws(0, "world", "SG"))}


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].tobytes()
    stream(0, "policy").random(10)
    assert np.random.get_state()[1].tobytes() == before


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="seed -1 is negative; use an integer of at least 0"):
        stream(-1, "workload")


def test_an_unknown_stream_is_refused():
    with pytest.raises(ValueError, match="unknown random stream 'wrld'; streams: workload, world, policy"):
        stream(0, "wrld")
