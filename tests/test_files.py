"""Files are whole or absent, folders too; locks keep two processes apart; names never lead out of a folder."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonward import files
from noonward.errors import FileError
from noonward.files import (
    file_name,
    locked_folder,
    make_folder,
    require_folder,
    require_writable,
    whole_file,
    whole_folder,
    write_table,
    write_text,
)


def content(folder: Path) -> dict[str, str]:
    """Returns all files below a folder, hidden ones too."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in found}


def test_a_file_is_replaced_whole_and_its_folders_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b.txt", "old")
    write_text(tmp_path / "a" / "b.txt", "né")
    assert content(tmp_path) == {"a/b.txt": "né"}


def test_a_table_is_written_by_its_ending(tmp_path: Path) -> None:
    table = pl.DataFrame({"x": [1, 2]})
    write_table(tmp_path / "t.csv", table)
    write_table(tmp_path / "t.parquet", table)
    assert pl.read_csv(tmp_path / "t.csv").equals(table)
    assert pl.read_parquet(tmp_path / "t.parquet").equals(table)


def fail_after(path: Path, text: str) -> None:
    path.write_text(text)
    raise ZeroDivisionError


def test_an_error_in_mid_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "f", "old")
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "f") as file:
        fail_after(Path(file.name), "new")
    assert content(tmp_path) == {"f": "old"}


def test_an_error_in_mid_write_leaves_the_old_folder(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "r") as part:
        (part / "one").write_text("old")
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "r") as part:
        fail_after(part / "one", "new")
    assert content(tmp_path) == {"r/one": "old"}
    with whole_folder(tmp_path / "r") as part:
        (part / "two").write_text("new")
    assert content(tmp_path) == {"r/two": "new"}


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_named_and_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "f", "old")
    monkeypatch.setattr(files.os, "fsync", full_disk)
    with pytest.raises(FileError, match=r"f cannot be written: the disk is full; .*free some space"):
        write_text(tmp_path / "f", "new")
    with pytest.raises(FileError, match="the disk is full"), whole_folder(tmp_path / "r") as part:
        (part / "one").write_text("new")
    assert content(tmp_path) == {"f": "old"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_device_is_no_place_for_a_file() -> None:
    with pytest.raises(FileError, match="/dev/full is no regular file"):
        write_text(Path("/dev/full"), "x")


@pytest.mark.parametrize("what", ["whole_file", "whole_folder"])
def test_a_process_killed_in_mid_write_leaves_the_old_content(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    code = (
        f"import os, signal; from pathlib import Path; from noonward.files import {what}\n"
        f"with {what}(Path({str(place)!r})) as part:\n"
        "    part.write(b'new') if hasattr(part, 'write') else (part / 'f').write_text('new')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -9
    assert not place.exists()
    assert len(list(tmp_path.iterdir())) == 1
    files._tidied.clear()
    write_text(place, "next")
    assert content(tmp_path) == {"place": "next"}, "what the killed process left is removed"


def test_what_a_living_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a") as file:
        file.write(b"a")
        files._tidied.clear()
        write_text(tmp_path / "b", "b")
    assert content(tmp_path) == {"a": "a", "b": "b"}


def test_a_link_keeps_pointing_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_text(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "x"


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="folder is a folder; name a file"):
        write_text(tmp_path / "folder", "x")
    with pytest.raises(FileError, match=r"file.csv is a file; name a folder"), whole_folder(tmp_path / "file.csv"):
        pass
    with pytest.raises(FileError, match=r"file.csv is a file, not a folder; name another folder"):
        write_text(tmp_path / "file.csv" / "x", "x")
    with pytest.raises(FileError, match="is a file, not a folder"):
        make_folder(tmp_path / "file.csv")
    with pytest.raises(FileError, match="the name is too long"):
        write_text(tmp_path / ("x" * 300), "x")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_missing_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="no permission"):
        write_text(tmp_path / "x", "x")


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EACCES, "there is no permission"),
        (errno.EROFS, "its file system is read-only"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EIO, "Input"),
    ],
)
def test_every_refusal_of_the_system_has_an_explanation(tmp_path: Path, number: int, says: str) -> None:
    with pytest.raises(FileError, match=f"f cannot be written: {says}"), whole_file(tmp_path / "f"):
        raise OSError(number, os.strerror(number))
    assert not content(tmp_path)


def test_a_folder_is_checked_before_anything_is_computed(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b", "--out")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    for folder, says in (
        (tmp_path / "q4.csv", "--out .*q4.csv looks like a file, but a folder is meant; leave out '.csv'"),
        (tmp_path / "file", "is a file, not a folder"),
        (tmp_path / "file" / "x", "is a file, not a folder"),
        (Path("/proc/x"), "--out: /proc/x cannot be written"),
    ):
        with pytest.raises(FileError, match=says):
            require_writable(folder, "--out")


def test_a_file_needs_its_folder_unless_the_command_makes_it(tmp_path: Path) -> None:
    require_folder(tmp_path / "t.csv", "--csv")
    require_folder(tmp_path / "runs" / "t.csv", "--csv", made=tmp_path / "runs")
    for file, made in (
        (tmp_path / "no" / "t.csv", None),
        (tmp_path / "no" / "t.csv", tmp_path / "runs"),
        (tmp_path / "runs" / "no" / "t.csv", tmp_path / "runs"),
    ):
        with pytest.raises(FileError, match=f"--csv {file}: there is no folder {file.parent}; make it first, or"):
            require_folder(file, "--csv", made)
    assert not content(tmp_path)


def test_a_lock_keeps_a_second_holder_out_and_says_who_holds_it(tmp_path: Path) -> None:
    with locked_folder(tmp_path / "run", "training"):
        with (
            pytest.raises(FileError, match=rf"run is in use by training, process {os.getpid()} on .*, since 2.* UTC;"),
            locked_folder(tmp_path / "run", "training"),
        ):
            pass
        with pytest.raises(FileError), locked_folder(tmp_path / "run", "training"):
            pass
    assert content(tmp_path) == {}
    with locked_folder(tmp_path / "run", "training"):
        pass


def test_an_error_while_a_folder_is_locked_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), locked_folder(tmp_path, "training"):
        raise BrokenPipeError


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import os, signal; from pathlib import Path; from noonward.files import locked_folder\n"
        f"with locked_folder(Path({str(tmp_path)!r}), 'training'):\n"
        "    print('held', flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FileError, match=f"process {other.pid} on"), locked_folder(tmp_path, "training"):
            pass
        other.kill()
    assert (tmp_path / files.LOCK).exists()
    with locked_folder(tmp_path, "training"):
        pass


@given(st.lists(st.text(max_size=80), min_size=2, max_size=4, unique=True))
def test_names_of_files_differ_and_stay_in_their_folder(names: list[str]) -> None:
    encoded = [file_name(name) for name in names]
    assert len({each.lower() for each in encoded}) == len(names)
    for each in encoded:
        assert Path("folder", each).resolve().parent == Path("folder").resolve()
        assert len(each.encode()) <= 100
        assert each.isascii()


def test_plain_names_stay_as_they_are() -> None:
    for name in ("bid-price", "greedy-energy-4", "a.npz"):
        assert file_name(name) == name
    for name in ("..", ".", "", "a/b", "Mine", "~", "x" * 65, "a\0b", "\udc80"):
        assert file_name(name).split("~")[1]
