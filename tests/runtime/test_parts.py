"""Environments as they travel: the same digests and runs, and nothing writes into what others read."""

import pickle

import numpy as np
import pytest

from noonward.data.scenarios.load import load_scenario
from noonward.runtime.by_kind import build_environment, environment_digest
from noonward.runtime.parts import apart, joined


@pytest.mark.parametrize("name", ["tiny", "dvfs-training", "edge-inference"])
def test_a_thing_that_travelled_has_the_same_digest(name):
    environment = build_environment(load_scenario(name))
    content, buffers = apart(environment)
    again = joined((content, [bytes(buffer.raw()) for buffer in buffers]))
    assert environment_digest(again) == environment_digest(environment)
    assert pickle.dumps(again.notes) == pickle.dumps(environment.notes)


def test_arrays_are_apart_and_not_copied():
    array = np.arange(100_000.0)
    content, buffers = apart({"array": array})
    assert len(content) < 1000
    assert np.shares_memory(joined((content, buffers))["array"], array)
