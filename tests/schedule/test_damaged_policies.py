"""Odd and damaged files of policies and forecasts: each is answered by one clear error, or runs as if it were whole."""

import json
import random
import struct
import zipfile

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError, NoonwardError
from noonward.forecasts.learned import net_path, read_net
from noonward.runtime import by_kind
from noonward.schedule import net_file
from noonward.schedule.edge.trained_policy import FOLDER as EDGE
from noonward.schedule.policy_files import load_policy
from schedule.test_choices import ABOUT, nets, write_choice_policy
from trained_files import write_random_policy

WRONG = (None, "x", -1, 10**13, [], {}, [["x"]], {"x": [1]}, float("nan"), True, 0.5)
"""Values of a wrong type or size for an entry of ``meta``."""


def cluster(path):
    write_random_policy(path)
    return "tiny", ["window_h=1"]


def choices(path):
    four = nets(seed=1)
    write_choice_policy(
        path, [*four.weights, *four.price_weights], [*four.biases, *four.price_biases], ABOUT | {"sites": []}
    )
    return "tiny", ["window_h=1"]


def edge(path):
    path.write_bytes((EDGE / "eat-da.npz").read_bytes())
    return "edge-inference", ["tasks.count=2", "tasks.first=2"]


def forecast(path):
    path.write_bytes(net_path("small-seed0").read_bytes())
    return None, []


KINDS = (cluster, choices, edge, forecast)


def answer(path, environment):
    """Returns the error's message, or nothing where the file is taken; a policy's file is run too."""
    net_file._whole.cache_clear()  # files follow each other here within the clock's least step
    try:
        if environment is None:
            read_net(path)
        else:
            policy = load_policy(path)
            by_kind.check_fit(environment, policy, path.name)
            by_kind.remarks(environment, policy)
            by_kind.run(environment, policy)
    except NoonwardError as error:
        return str(error)
    return ""


@pytest.fixture(params=KINDS, ids=lambda make: make.__name__)
def whole(request, tmp_path):
    """A whole file, its entries, and an environment that it runs in; None for a forecast's."""
    path = tmp_path / "whole.npz"
    name, settings = request.param(path)
    environment = None if name is None else by_kind.build_environment(load_scenario(name, settings))
    assert answer(path, environment) == ""
    with np.load(path) as file:
        return path, dict(file), environment


def test_a_damaged_byte_or_a_cut_is_one_error(whole):
    path, _, environment = whole
    content, draw, refused = path.read_bytes(), random.Random(1), 0
    broken = path.with_name("broken.npz")
    for _ in range(60):
        at = draw.randrange(len(content)) if draw.random() < 0.5 else draw.choice([-1, 1]) * draw.randrange(400)
        at %= len(content)
        broken.write_bytes(content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :])
        refused += answer(broken, environment) != ""
    assert refused >= 30  # the rest are fields that nobody reads, as times
    for share in (0.0, 0.1, 0.5, 0.9, 0.999):
        broken.write_bytes(content[: int(share * len(content))])
        assert "broken.npz" in answer(broken, environment)


def test_a_wrong_entry_of_what_a_file_says_is_one_error(whole):
    path, entries, environment = whole
    name = "meta" if "meta" in entries else "record"
    text, draw, tried, refused = str(entries[name]), random.Random(2), 0, 0
    broken = path.with_name("broken.npz")
    for steps in places(json.loads(text)):
        for value in ("dropped", *draw.sample(WRONG, 3)):
            said = json.loads(text)
            holder = said
            for step in steps[:-1]:
                holder = holder[step]
            if value == "dropped":
                del holder[steps[-1]]
            else:
                holder[steps[-1]] = value
            np.savez(broken, **entries | {name: np.array(json.dumps(said))})
            tried += 1
            refused += answer(broken, environment) != ""
    assert tried >= 40
    assert refused >= tried // 8


def places(said):
    """Returns the entries of an object that readers use, two levels deep and no long lists."""
    found = []
    for key, value in said.items():
        found.append((key,))
        if isinstance(value, dict) and key != "curve":
            found += [(key, inner) for inner in value if inner in ("months", "config", "curve") or key != "record"]
        elif isinstance(value, list):
            found += [(key, n) for n in range(min(2, len(value)))]
    return found


def test_arrays_that_do_not_fit_are_one_error(whole):
    path, entries, environment = whole
    broken = path.with_name("broken.npz")
    names = [name for name, array in entries.items() if array.dtype.kind == "f" and array.size]
    for name in names:
        array = entries[name]
        others = (
            array[..., :-1],
            np.concatenate([array, array]),
            array[0] if array.ndim else array[None],
            array[None],
            array.astype("U8"),
            array.astype(np.int64),
            array.astype(np.complex64),
            np.full_like(array, np.nan),
        )
        for other in others:
            np.savez(broken, **entries | {name: other})
            said = answer(broken, environment)
            assert said or other.dtype == np.int64, (name, other.shape, other.dtype)
        np.savez(broken, **{key: value for key, value in entries.items() if key != name})
        assert answer(broken, environment)


def test_a_header_that_claims_more_values_than_there_are_is_one_error(whole):
    path, entries, environment = whole
    broken = path.with_name("broken.npz")
    name = next(name for name, array in entries.items() if array.dtype.kind == "f" and array.size)
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**13},), }}".ljust(117) + "\n"
    claims = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + b"\0" * 64
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(broken, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, claims if entry == f"{name}.npy" else old.read(entry))
    assert f"array '{name}' claims {4 * 10**13} bytes of values and holds 64" in answer(broken, environment)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"sites": 3}, "meta has sites 3: Input should be a valid list"),
        ({"sites": ["north", 2]}, r"meta has sites\.1 2: Input should be a valid string"),
        ({"record": {"months": 3}}, r"meta has record\.months 3: Input should be a valid dictionary"),
    ],
)
def test_what_a_policy_says_of_itself_is_checked_before_it_is_written(tmp_path, said, message):
    with pytest.raises(DataError, match=message):
        write_random_policy(tmp_path / "odd.npz", **({"record": {}} | said))


def test_a_forecast_of_a_wrong_size_is_explained(tmp_path):
    with np.load(net_path("small-seed0")) as file:
        entries = dict(file)
    np.savez(tmp_path / "odd.npz", **entries | {"weight_0": entries["weight_0"][:-1]})
    with pytest.raises(DataError, match=r"layer 0 has weights of shape \(174, 256\) .* expected \(175, 256\)"):
        read_net(tmp_path / "odd.npz")


def test_a_random_policy_runs_after_all_that(tmp_path):
    write_random_policy(tmp_path / "whole.npz")
    environment = build_environment(load_scenario("tiny", ["window_h=1"]))
    assert by_kind.run(environment, load_policy(tmp_path / "whole.npz")).steps
