"""Files and folders that are written atomically, arrays in files, locks on folders, safe names for files."""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import io
import itertools
import math
import os
import re
import shutil
import socket
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TextIO

from noonward.errors import DataError, FileError

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

LOCK: Final = ".lock"
"""File within a folder that the process working there holds locked."""
SLUG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names that are used as they are in paths: 1 to 64 letters, digits, dots, dashes and underscores."""
FILE_SUFFIXES: Final = frozenset({".csv", ".html", ".json", ".npz", ".parquet", ".txt", ".yaml", ".yml"})
"""Endings that show that a file is meant, not a folder."""
_PLAIN_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PART: Final = re.compile(r"\..+\.([0-9a-f]{8})-(\d+)-\d+\.part")
_numbers = itertools.count()
_tidied: set[Path] = set()


def version_of(path: Path, remedy: str) -> tuple[int, int]:
    """Returns what changes when a file is written again: its time, ns, and size, bytes.

    Args:
        path: The file.
        remedy: What to do if it cannot be looked at, for the message.

    Raises:
        FileError: It cannot be.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    return stat.st_mtime_ns, stat.st_size


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that appears at its place whole, or not at all.

    What is written goes to a file beside it, which is renamed once it is on the disk. Until then, and after an error,
    the place holds what it held before. Missing folders are made. A link keeps pointing to its file, which is replaced.

    Args:
        path: Place of the file.

    Yields:
        The file, open for writing bytes.

    Raises:
        FileError: The place is a folder or a device, or it cannot be written; the message says why.
    """
    place = Path(os.path.realpath(path))
    with _explained(path):
        if place.is_dir():
            raise FileError(f"{path} is a folder; name a file")
        if place.exists() and not place.is_file():
            raise FileError(f"{path} is no regular file; name a file in a folder of yours")
        part = _part_of(place)
        try:
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(place)
            _to_disk(place.parent)
        finally:
            part.unlink(missing_ok=True)


def write_text(path: Path, content: str) -> None:
    """Writes a text file in UTF-8, whole or not at all (``whole_file``)."""
    with whole_file(path) as file:
        file.write(content.encode())


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Writes a table as CSV or Parquet, by the path's ending, whole or not at all (``whole_file``)."""
    content = table_bytes(table, path.suffix)
    with whole_file(path) as file:
        file.write(content)


def table_bytes(table: pl.DataFrame, suffix: str, compression: Literal["zstd", "lz4"] = "zstd") -> bytes:
    """Returns the content of a table's file; polars itself reports a full disk in words only.

    Args:
        table: The table.
        suffix: ``.csv`` or ``.parquet``.
        compression: Of a Parquet file; ``lz4`` takes 40 % less time for a file a fifth larger.
    """
    content = io.BytesIO()
    if suffix == ".csv":
        table.write_csv(content)
    else:
        table.write_parquet(content, compression=compression)
    return content.getvalue()


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes arrays from where they lie as an ``.npz`` file, whole or not at all (``whole_file``).

    Args:
        path: File.
        arrays: Arrays by name; C-contiguous ones are not copied.
    """
    import numpy as np

    with whole_file(path) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            held = np.asarray(array, order="C")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                header = np.lib.format.header_data_from_array_1_0(held)
                np.lib.format.write_array_header_2_0(entry, header)
                entry.write(held.reshape(-1).view(np.uint8).data if held.size else b"")


def stored_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Returns the arrays of an ``.npz`` file by name; nothing in it is run, and no more memory is taken than it fills.

    Args:
        path: File.
        names: Arrays to read, those that the file holds of them; None: all.

    Raises:
        DataError: The file cannot be opened, is damaged, or holds other things than plain arrays; the message says why,
            without the path.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            return {
                name: _plain_array(archive.read(entry), name)
                for name, entry in entries.items()
                if names is None or name in names
            }
    except DataError:
        raise
    except OSError as error:
        raise DataError(error.strerror or "it cannot be read") from error
    except Exception as error:  # zipfile, zlib and NumPy raise almost anything on damaged content
        raise DataError("it is no archive of plain arrays") from error


def _plain_array(content: bytes, name: str) -> NDArray[Any]:
    """Returns the array of an ``.npy`` file's content.

    Raises:
        DataError: It claims more or fewer values than the content holds.
        ValueError: It is none, or would have to be unpickled.
    """
    import numpy as np

    stream = io.BytesIO(content)
    formats = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = formats[np.lib.format.read_magic(stream)](stream)
    claimed, held = math.prod(shape) * dtype.itemsize, len(content) - stream.tell()
    if claimed != held and not dtype.hasobject:
        raise DataError(f"its array {name!r} claims {claimed} bytes of values and holds {held}")
    return np.asarray(np.lib.format.read_array(io.BytesIO(content), allow_pickle=False))


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Makes a folder that appears at its place with all its files, or not at all.

    The files go to a folder beside it, which is renamed once they are on the disk. A folder that stands at the place
    is removed just before that; after an error it is still there.

    Args:
        path: Place of the folder.

    Yields:
        The folder to write files to.

    Raises:
        FileError: A file stands at the place, or it cannot be written; the message says why.
    """
    place = Path(os.path.realpath(path))
    with _explained(path):
        if place.exists() and not place.is_dir():
            raise FileError(f"{path} is a file; name a folder")
        part = _part_of(place)
        part.mkdir()
        try:
            yield part
            for file in part.rglob("*"):
                _to_disk(file)
            _replace_folder(part, place)
            _to_disk(place.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def locked_folder(folder: Path, what: str) -> Iterator[None]:
    """Keeps a folder to this process; the system ends the lock with the process, however that ends.

    Args:
        folder: The folder; made if it is missing.
        what: What this process does there, for the message that another one gets: ``"training"``.

    Raises:
        FileError: Another process, or another part of this one, holds the folder; the message says which and since
            when. Or the folder cannot be written or locked.
    """
    make_folder(folder)
    with _explained(folder):
        file = _locked(folder / LOCK, folder)
    try:
        with _explained(folder):
            since = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            file.truncate(0)
            file.write(f"{what}, process {os.getpid()} on {socket.gethostname()}, since {since}\n")
            file.flush()
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)
        file.close()


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it where they are missing.

    Raises:
        FileError: A file stands in the way, or the folder cannot be made; the message says why.
    """
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)


def require_writable(folder: Path, option: str) -> None:
    """Raises FileError unless files can be written below a folder, which need not exist; leaves nothing there.

    Args:
        folder: The folder.
        option: Option or argument that names it, for messages.
    """
    if not folder.is_dir() and folder.suffix.lower() in FILE_SUFFIXES:
        raise FileError(f"{option} {folder} looks like a file, but a folder is meant; leave out {folder.suffix!r}")
    nearest = Path(os.path.realpath(folder))
    while not nearest.exists():
        nearest = nearest.parent
    try:
        with _explained(folder):
            tempfile.TemporaryDirectory(dir=nearest, prefix=".noonward-").cleanup()
    except FileError as error:
        raise FileError(f"{option}: {error}") from error.__cause__


def require_folder(file: Path, option: str, made: Path | None = None) -> None:
    """Raises FileError unless a user's file can be written, whose folder exists already; leaves nothing there.

    Args:
        file: The file.
        option: Option or argument that names it, for messages.
        made: Folder that the command makes if it is missing; files may be written there.
    """
    folder = Path(os.path.realpath(file)).parent
    if not folder.exists() and (made is None or folder != Path(os.path.realpath(made))):
        raise FileError(f"{option} {file}: there is no folder {folder}; make it first, or correct the path")
    require_writable(folder, option)


def file_name(name: str) -> str:
    """Returns a name for a file or folder: different for different names, and never a path out of its folder.

    Args:
        name: Any text: a policy's name, a path, ``module:Class``.

    Returns:
        The name itself if it is at most 64 lower-case letters, digits, dots, dashes and underscores that begin with a
        letter or digit. Otherwise what is legible of it, ``~``, and a digest of the whole.

    Example:
        >>> file_name("bid-price"), file_name("../mine:Waits")
        ('bid-price', 'mine.Waits~59175dc833e8')
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    legible = re.sub(r"[^A-Za-z0-9_-]+", ".", name).strip(".")[-48:]
    return f"{legible}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _locked(place: Path, folder: Path) -> TextIO:
    """Returns a lock file, open and locked.

    Raises:
        FileError: Another process holds it.
    """
    import fcntl

    while True:
        file = os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT, 0o666), "r+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if place.exists() and os.path.samestat(place.stat(), os.fstat(file.fileno())):
                return file
            file.close()  # its holder has just ended and removed it
        except BlockingIOError:
            holder = file.read().strip() or "another process"
            file.close()
            raise FileError(
                f"{folder} is in use by {holder}; wait until it ends, stop it, or choose another folder"
            ) from None
        except BaseException:
            file.close()
            raise


def _part_of(place: Path) -> Path:
    """Returns a path beside a place that no other process writes to; makes the folder, removes what dead ones left."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.parent not in _tidied:
        _tidied.add(place.parent)
        for left in place.parent.iterdir():
            if _is_left_over(left.name):
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    return place.parent / f".{place.name[:100]}.{_machine()}-{os.getpid()}-{next(_numbers)}.part"


def _is_left_over(name: str) -> bool:
    """Returns whether a name is that of an unfinished file or folder of a process that no longer runs here."""
    match = _PART.fullmatch(name)
    if match is None or match[1] != _machine():
        return False
    try:
        os.kill(int(match[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _machine() -> str:
    """Returns a short digest of this machine's name."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _to_disk(path: Path) -> None:
    """Waits until a file's or folder's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot be asked for folders
            raise
    finally:
        os.close(descriptor)


def _replace_folder(part: Path, place: Path) -> None:
    """Renames a folder to its place; what stands there is moved away and removed."""
    old = _part_of(place)
    while True:
        with contextlib.suppress(FileNotFoundError):
            place.rename(old)
        try:
            part.rename(place)
        except OSError as error:
            # Another process has just put the same folder there: it is replaced in its turn.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(old)
            continue
        shutil.rmtree(old, ignore_errors=True)
        return


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns the system's refusal to write into a FileError that says what to do."""
    try:
        yield
    except OSError as error:
        raise FileError(_explanation(error, path)) from error


def _explanation(error: OSError, path: Path) -> str:
    """Returns why a path could not be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = "the disk is full; nothing is left half-written; free some space and try again"
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason = "there is no permission to write there; ask for it or choose another folder"
    elif error.errno == errno.EROFS:
        reason = "its file system is read-only; choose another folder"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        file = next((each for each in [path, *path.parents] if each.is_file()), path)
        reason = f"{file} is a file, not a folder; name another folder"
    elif error.errno == errno.ENAMETOOLONG:
        reason = "the name is too long; choose a shorter one"
    else:
        reason = f"{error.strerror or error or type(error).__name__}; choose another folder"
    return f"{path} cannot be written: {reason}"


class PassingFolder:
    """A new folder among the system's temporary ones, removed when this object is dropped or the program ends.

    Attributes:
        path: The folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="noonward-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, True)
