"""Damaged records: cut, changed and half-empty files are refused by one clear error and never believed."""

import json
import random
import shutil

import pytest

from ledger.two_jobs import played
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError
from noonward.ledger.folder import json_bytes, write_files
from noonward.ledger.record import record_files
from noonward.runtime import by_kind
from noonward.runtime.by_kind import read_record
from noonward.schedule.policies import make_scheduler

WRONG = (None, "x", -1, [], {}, 1e400, True)
"""Values of a wrong type or size that stand for one of a JSON file."""


def cluster_files():
    return record_files(played(), policy="script", seed=0, scenario_digest="abc")


def edge_files():
    scenario = load_scenario("edge-inference", ["tasks.count=20"])
    environment = by_kind.build_environment(scenario)
    outcome = by_kind.run(environment, make_scheduler("greedy", "edge"))
    return by_kind.record_files(outcome, policy="greedy", seed=0, scenario_digest="abc")


def damage_bytes(content, draw):
    """Yields ways in which a file breaks on a disk."""
    yield "is empty", b""
    for share in (0.25, 0.5, 0.9):
        yield f"is cut at {share}", content[: int(len(content) * share)]
    yield "lost its last byte", content[:-1]
    yield "holds bytes of another", content + b"\0" * 7
    for _ in range(12):
        at = draw.randrange(len(content))
        yield f"has byte {at} changed", content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def damage_json(content, draw):
    """Yields contents without one key, or with one value of another type, at any depth."""
    whole = json.loads(content)
    places = list(objects(whole))
    for path, key in draw.sample(places, min(25, len(places))):
        for value in ("dropped", draw.choice(WRONG)):
            changed = json.loads(content)
            holder = changed
            for step in path:
                holder = holder[step]
            if value == "dropped":
                del holder[key]
            elif holder[key] == value and type(holder[key]) is type(value):
                continue
            else:
                holder[key] = value
            yield f"has {'/'.join(map(str, (*path, key)))} {value!r}", json_bytes(changed)


def objects(holder, path=()):
    """Yields every key of every object with the way to it."""
    for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
        if isinstance(holder, dict):
            yield path, key
        if isinstance(value, (dict, list)):
            yield from objects(value, (*path, key))


def read_or_error(folder):
    """Returns the record and no message, or no record and the error's message; any other error is raised."""
    try:
        return read_record(folder), ""
    except DataError as error:
        return None, str(error)


@pytest.mark.parametrize("make", [cluster_files, edge_files])
def test_no_damage_is_believed_and_each_is_one_error(tmp_path, make):
    files, draw, tried = make(), random.Random(7), 0
    folder = tmp_path / "000"
    write_files(files, folder)
    sealed = {path.name: path.read_bytes() for path in folder.iterdir()}
    first = read_record(folder)
    assert first.manifest["digests"]
    for name, content in sorted(sealed.items()):
        ways = list(damage_bytes(content, draw))
        if name.endswith(".json"):
            ways += list(damage_json(content, draw))
        for what, changed in ways:
            (folder / name).write_bytes(changed)
            tried += 1
            found, said = read_or_error(folder)
            if found is None:
                assert said.endswith("run the policy again"), (name, what)
            else:  # white space of the manifest alone may change
                assert name == "manifest.json", (name, what)
                assert found.manifest == first.manifest, (name, what)
        (folder / name).write_bytes(content)
    assert tried >= 100


@pytest.mark.parametrize("make", [cluster_files, edge_files])
def test_a_whole_record_of_other_content_is_one_error_too(tmp_path, make):
    """Written with right digests by a program of another version: keys and types are not ours."""
    files, draw, refused, tried = make(), random.Random(3), 0, 0
    for name in (name for name in files if name.endswith(".json") and name != "manifest.json"):
        for what, changed in damage_json(files[name], draw):
            write_files(files | {name: changed}, tmp_path / "000")
            tried += 1
            found, said = read_or_error(tmp_path / "000")
            if found is None:
                refused += 1
                assert "000 is a damaged run record" in said, (name, what)
    assert tried >= 20
    assert refused


def test_files_that_only_some_records_hold_are_checked_too(tmp_path):
    write_files(cluster_files() | {"segments.parquet": b"whole"}, tmp_path / "000")
    read_record(tmp_path / "000")
    (tmp_path / "000" / "segments.parquet").write_bytes(b"other")
    with pytest.raises(DataError, match=r"segments\.parquet is not as it was recorded .* run the policy again"):
        read_record(tmp_path / "000")
    (tmp_path / "000" / "segments.parquet").unlink()
    with pytest.raises(DataError, match=r"damaged run record: segments\.parquet is missing; run the policy again"):
        read_record(tmp_path / "000")


def test_tables_that_vanish_after_reading_are_an_error(tmp_path):
    write_files(cluster_files(), tmp_path / "000")
    record = read_record(tmp_path / "000")
    (tmp_path / "000" / "jobs.parquet").write_bytes(b"PAR1")
    shutil.copy(tmp_path / "000" / "ledger.json", tmp_path / "000" / "hours.parquet")
    for name in ("jobs", "hours"):
        with pytest.raises(DataError, match=rf"damaged run record: {name}\.parquet cannot be read any more"):
            getattr(record, name)


def test_the_manifest_alone_changes_by_the_digests(tmp_path):
    files = cluster_files()
    write_files(files, tmp_path / "000")
    written = json.loads((tmp_path / "000" / "manifest.json").read_bytes())
    assert set(written.pop("digests")) == set(files)
    assert written == json.loads(files["manifest.json"])
    assert all((tmp_path / "000" / name).read_bytes() == files[name] for name in files if name != "manifest.json")
