"""Files of nets: what is written is read back, and a block that does not fit its type is explained."""

import json

import numpy as np
import pytest

from noonward.errors import DataError
from noonward.schedule.net_file import Block, perceptron, read_meta, read_nets, write_nets


def layers(seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(2, 3, 4), (2, 4, 1)]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes], [
        rng.normal(size=(2, shape[2])).astype(np.float32) for shape in shapes
    ]


@pytest.mark.parametrize("half", [False, True])
def test_several_nets_are_read_back_as_they_were_written(tmp_path, half):
    actor, critic = (perceptron(*layers(seed)) for seed in (0, 1))
    write_nets(tmp_path / "nets.npz", {"actor": actor, "critic": critic}, {"said": [1, "two"]}, half=half)
    nets, meta = read_nets(tmp_path / "nets.npz")
    assert list(nets) == ["actor", "critic"]
    assert meta == read_meta(tmp_path / "nets.npz") == {"said": [1, "two"], "format": 2}
    for name, written in (("actor", actor), ("critic", critic)):
        assert [block.settings for block in nets[name]] == [{"activation": "relu"}, {"activation": "none"}]
        for mine, its in zip(nets[name], written, strict=True):
            for array, other in ((mine.arrays[each], its.arrays[each]) for each in ("weight", "bias")):
                assert array.dtype == np.float32
                expected = other.astype(np.float16).astype(np.float32) if half else other
                np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (Block("dence", {}, {}), "block 0 of net 'policy' is of the unknown type 'dence'; .*did you mean 'dense'"),
        (Block("dense", {"weight": np.zeros((1, 2, 2))}, {"activation": "none"}), "has weight, activation; the type"),
        (
            Block("dense", {"weight": np.zeros((2, 2)), "bias": np.zeros((1, 2))}, {"activation": "none"}),
            r"weight of shape \(2, 2\); it must have 3 axes",
        ),
        (
            Block("dense", {"weight": np.zeros((1, 2, 2)), "bias": np.zeros((1, 2))}, {"activation": "tanh"}),
            "unknown activation 'tanh'; known: none, relu",
        ),
    ],
)
def test_a_block_that_does_not_fit_its_type_is_explained(tmp_path, block, message):
    with pytest.raises(DataError, match=message):
        write_nets(tmp_path / "nets.npz", {"policy": [block]}, {})
    assert not (tmp_path / "nets.npz").exists()
    arrays = {f"policy/0/{name}": array for name, array in block.arrays.items()}
    listed = {"policy": [{"type": block.type, **block.settings}]}
    meta = np.array(json.dumps({"format": 2}))
    np.savez(tmp_path / "nets.npz", meta=meta, nets=np.array(json.dumps(listed)), **arrays)
    with pytest.raises(DataError, match=message if "has weight" not in message else "lacks the array policy/0/bias"):
        read_nets(tmp_path / "nets.npz")


@pytest.mark.parametrize(
    "listed", [[], {"policy": {}}, {"policy": [{}]}, {"policy": ["dense"]}, {"policy": [{"type": 3}]}]
)
def test_a_list_of_blocks_of_the_wrong_type_is_explained(tmp_path, listed):
    meta = np.array(json.dumps({"format": 2}))
    np.savez(tmp_path / "nets.npz", meta=meta, nets=np.array(json.dumps(listed)))
    with pytest.raises(DataError, match="is no list of blocks by net"):
        read_nets(tmp_path / "nets.npz")
