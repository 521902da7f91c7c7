"""Compiled functions: numba with an on-disk cache that knows which sources a function rests on.

numba keys its cache by the file a function stands in, so a function compiled into a caller of another file would
survive its own edit. Here a function's folder carries a digest of its file and of all of the package's files that it
imports, directly or not: an edit of one of them starts an empty folder, an edit elsewhere compiles nothing again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import config as numba_config

config: Any = numba_config
CACHE_VARIABLE = "NOONWARD_CACHE_DIR"
"""Environment variable that names another folder for compiled functions."""
PACKAGE = Path(__file__).parent
_IMPORT = re.compile(r"^[ \t]*from noonward\.([\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_in_use: set[Path] = set()
_compiled: list[str] = []


def compilations() -> int:
    """Returns how many functions this process has compiled so far, instead of reading them from the cache."""
    return len(_compiled)


def cache_base() -> Path:
    """Returns the folder of all compiled functions of this package."""
    base = os.environ.get(CACHE_VARIABLE) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "noonward" / "kernels"


@functools.cache
def code_digest() -> str:
    """Returns a digest of every source file, packaged table and packaged policy that a run depends on."""
    digest = hashlib.sha256(f"numba {numba.__version__}".encode())
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("tables/*"), *PACKAGE.rglob("trained/*.npz")]):
        if path.relative_to(PACKAGE).parts[0] in ("cli", "evaluate", "learn", "studies", "bench"):
            continue  # they hold no compiled function and change no run
        digest.update(str(path.relative_to(PACKAGE)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def package_digest() -> str:
    """Returns a digest of every source file and every packaged file: equal for equal installations."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(PACKAGE)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _imported(path: Path) -> tuple[Path, ...]:
    """Returns the files of this package that a file imports by name."""
    found = []
    for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
        target = PACKAGE.joinpath(*module.split("."))
        parts = re.findall(r"\w+", names) if target.is_dir() else []
        found += [target.with_suffix(".py"), *(target / f"{name}.py" for name in parts)]
    return tuple(file for file in found if file.exists())


@functools.cache
def cache_folder(source: Path) -> Path:
    """Returns the folder of a source file's compiled functions, as the file and all it imports of this package stand.

    Args:
        source: File that exists.
    """
    files, new = {source}, [source]
    while new:
        more = {file for path in new for file in _imported(path)} - files
        files |= more
        new = list(more)
    digest = hashlib.sha256(f"numba {numba.__version__}".encode())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return cache_base() / digest.hexdigest()[:16]


def prune_cache(keep: int = 3) -> None:
    """Removes compiled functions of older states of the sources.

    Args:
        keep: Folders that stay beside each one in use, the newest ones.
    """
    others = [folder for folder in cache_base().glob("*") if folder.is_dir() and folder not in _in_use]
    for folder in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[keep * len(_in_use) :]:
        shutil.rmtree(folder, ignore_errors=True)


def kernel(
    signature: Any = None, *, inline: bool = False, allocates: bool = True
) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function to machine code, cached on disk.

    Args:
        signature: numba signature; given for functions that are passed to others (schedulers' rules), which need one
            address. Without it the function compiles at its first call.
        inline: Have the function's machine code pasted into its callers.
        allocates: Whether the function makes arrays. One that only reads and writes those it is given goes without
            reference counts, several times faster where it handles many.

    Returns:
        A decorator. The function must only read its arguments and module constants.

    Example:
        >>> @kernel()
        ... def twice(x):
        ...     return 2 * x
        >>> twice(21)
        42
    """

    def decorate(function: Callable[..., Any]) -> Any:
        saved = config.CACHE_DIR
        source = Path(inspect.getfile(function))
        # A function typed at a prompt has no file, hence no place in the cache.
        options: dict[str, Any] = {
            "cache": source.exists(),
            "nogil": True,
            "error_model": "numpy",
        }
        options["_nrt"] = allocates
        if source.exists():
            folder = cache_folder(source)
            _in_use.add(folder)
            config.CACHE_DIR = str(folder)
        compiler = numba.njit(forceinline=inline, **options) if signature is None else numba.njit(signature, **options)
        try:
            return compiler(function)
        finally:
            config.CACHE_DIR = saved

    return decorate
