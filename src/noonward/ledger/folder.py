"""Folders of run records, of any kind of scenario: the version of their format, their JSON files, how they are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from noonward.errors import DataError

FORMAT: Final = 3
"""Version of the format of records."""


def json_bytes(content: dict[str, Any]) -> bytes:
    """Returns the content of a JSON file."""
    return (json.dumps(content, indent=1) + "\n").encode()


def read_json_files(folder: Path, files: Sequence[str]) -> dict[str, Any]:
    """Returns the content of a record's JSON files by name without ending.

    Args:
        folder: Folder of the record.
        files: Names of all its files, ``manifest.json`` among them.

    Raises:
        DataError: A file is missing or no JSON, or the record is of another format.
    """
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder} is no run record: {', '.join(missing)} missing; run the policy again")
    try:
        contents = {
            Path(name).stem: json.loads((folder / name).read_text(encoding="utf-8"))
            for name in files
            if name.endswith(".json")
        }
    except ValueError as error:
        raise damaged(folder, error) from error
    if contents["manifest"].get("format") != FORMAT:
        raise DataError(
            f"{folder} is a run record of format {contents['manifest'].get('format')}; this version reads format "
            f"{FORMAT}; run the policy again"
        )
    return contents


def damaged(folder: Path, error: Exception) -> DataError:
    """Returns the error for a record that cannot be read."""
    return DataError(f"{folder} is a damaged run record: {error}; run the policy again")
