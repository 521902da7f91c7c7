"""Folders of run records, of any kind of scenario: the version of their format, digests of their files, reading."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from noonward.errors import DataError
from noonward.files import whole_folder, write_text

if TYPE_CHECKING:
    import polars as pl

MANIFEST: Final = "manifest.json"
"""File that says what was run and holds the digests of all files, its own included."""

FORMAT: Final = 3
"""Version of the format of records."""


def json_bytes(content: dict[str, Any]) -> bytes:
    """Returns the content of a JSON file."""
    return (json.dumps(content, indent=1) + "\n").encode()


def digest_of(content: bytes) -> str:
    """Returns the digest of a file's content that a manifest holds."""
    return hashlib.sha256(content).hexdigest()[:32]


def file_digest(path: Path) -> str:
    """Returns the digest of a file's content, which is not read into memory whole."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def manifest_digest(manifest: dict[str, Any]) -> str:
    """Returns the digest of a manifest without its digests, whatever the order of its entries."""
    return content_digest({name: value for name, value in manifest.items() if name != "digests"})


def content_digest(content: dict[str, Any]) -> str:
    """Returns the digest of what a JSON file says, whatever the order of its entries."""
    return digest_of(json.dumps(content, sort_keys=True).encode())


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file with an entry ``digest`` of the others, for ``read_sealed``."""
    write_text(path, json.dumps(content | {"digest": content_digest(content)}, indent=1) + "\n")


def read_sealed(path: Path) -> dict[str, Any]:
    """Returns the entries of a file of ``write_sealed``, without the digest.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no JSON object, or is not as it was written.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    if content.pop("digest", None) != content_digest(content):
        raise ValueError("it is not as it was written: its digest differs")
    return content


Content = bytes | Callable[[BinaryIO], None]
"""What a file holds, or, where that may be large, what writes it to a file."""


def content_bytes(content: Content) -> bytes:
    """Returns what a file holds, all in memory."""
    if isinstance(content, bytes):
        return content
    file = io.BytesIO()
    content(file)
    return file.getvalue()


def write_files(files: Mapping[str, Content], folder: Path) -> dict[str, Any]:
    """Writes a record's files to its folder atomically; an earlier record there is replaced.

    The manifest is written last, with an entry ``digests``: the digest of every file by name, and its own.

    Args:
        files: Content of the files by name, ``manifest.json`` and other JSON files as bytes among them.
        folder: Where.

    Returns:
        The content of its JSON files by name without ending, as ``read_json_files`` would read it.
    """
    said = {Path(name).stem: json.loads(content_bytes(files[name])) for name in files if name.endswith(".json")}
    manifest, digests = said["manifest"], {}
    with whole_folder(folder) as part:
        for name, content in files.items():
            if name == MANIFEST:
                continue
            if isinstance(content, bytes):
                digests[name] = digest_of(content)
                (part / name).write_bytes(content)
            else:
                with (part / name).open("xb") as file:
                    content(file)
                digests[name] = file_digest(part / name)
        sealed = manifest | {"digests": digests | {MANIFEST: manifest_digest(manifest)}}
        (part / MANIFEST).write_bytes(json_bytes(sealed))
    return said | {"manifest": sealed}


def read_json_files(folder: Path, files: Sequence[str]) -> dict[str, Any]:
    """Returns the content of a record's JSON files by name without ending.

    Args:
        folder: Folder of the record.
        files: Names of the files that every such record holds, ``manifest.json`` among them. The others that its
            manifest names are checked, too.

    Raises:
        DataError: A file is missing, is not the one that was recorded, or is no JSON; or the record is of another
            format.
    """
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder} is no run record: {', '.join(missing)} missing; run the policy again")
    manifest = _json(folder, MANIFEST, (folder / MANIFEST).read_bytes())
    if manifest.get("format") != FORMAT:
        raise DataError(
            f"{folder} is a run record of format {manifest.get('format')}; this version reads format "
            f"{FORMAT}; run the policy again"
        )
    digests = manifest.get("digests")
    if not isinstance(digests, dict):
        raise damaged(folder, f"its {MANIFEST} holds no digests of its files")
    if digests.get(MANIFEST) != manifest_digest(manifest):
        raise damaged(folder, _other(MANIFEST))
    contents = {"manifest": manifest}
    for name in dict.fromkeys([*files, *digests]):
        if name == MANIFEST:
            continue
        if not (folder / name).is_file():
            raise damaged(folder, f"{name} is missing")
        if digests.get(name) != file_digest(folder / name):
            raise damaged(folder, _other(name))
        if name.endswith(".json"):
            contents[Path(name).stem] = _json(folder, name, (folder / name).read_bytes())
    return contents


def read_table(folder: Path, name: str) -> pl.DataFrame:
    """Returns a Parquet file of a record as a table.

    Raises:
        DataError: It is missing or damaged, though it was whole when the record was read.
    """
    import polars as pl

    try:
        return pl.read_parquet(folder / name)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise damaged(folder, f"{name} cannot be read any more") from error


def scan_table(folder: Path, name: str) -> pl.LazyFrame:
    """Returns a Parquet file of a record as a table of which only what is asked for is read.

    Raises:
        DataError: It is missing or damaged, though it was whole when the record was read.
    """
    import polars as pl

    try:
        table = pl.scan_parquet(folder / name)
        table.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise damaged(folder, f"{name} cannot be read any more") from error
    return table


def damaged(folder: Path, why: object) -> DataError:
    """Returns the error for a record that cannot be read.

    Args:
        folder: Its folder.
        why: What is wrong, as a phrase or an error.
    """
    return DataError(f"{folder} is a damaged run record: {why}; run the policy again")


def _other(name: str) -> str:
    """Returns what is wrong with a file whose digest differs."""
    return f"{name} is not as it was recorded (its digest differs)"


def _json(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Returns the object in a JSON file of a record.

    Raises:
        DataError: It is none.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise damaged(folder, f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise damaged(folder, f"{name} is no JSON object")
    return found
