"""Compiled functions: numba with one on-disk cache per state of the package's sources.

numba keys its cache by the file a function stands in, so a function compiled into a caller of another file would
survive its own edit. Here the cache's folder carries a digest of all sources: an edit anywhere starts an empty one,
and a second start compiles nothing.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import config as numba_config

config: Any = numba_config
CACHE_VARIABLE = "NOONWARD_CACHE_DIR"
"""Environment variable that names another folder for compiled functions."""


@functools.cache
def cache_folder() -> Path:
    """Returns the folder of the compiled functions of exactly these sources and this numba.

    Its name is a digest of every source file and packaged table that a run depends on.
    """
    digest = hashlib.sha256(f"numba {numba.__version__}".encode())
    package = Path(__file__).parent
    for path in sorted([*package.rglob("*.py"), *package.rglob("tables/*.json")]):
        if path.relative_to(package).parts[0] in ("cli", "evaluate"):
            continue  # they hold no compiled function and change no run
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    base = os.environ.get(CACHE_VARIABLE) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "noonward" / "kernels" / digest.hexdigest()[:16]


def prune_cache(keep: int = 3) -> None:
    """Removes the folders of compiled functions of other states of the sources, but for the newest few.

    Args:
        keep: Folders that stay beside the one in use.
    """
    current = cache_folder()
    others = [folder for folder in current.parent.glob("*") if folder.is_dir() and folder != current]
    for folder in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[keep:]:
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
        config.CACHE_DIR = str(cache_folder())
        # A function typed at a prompt has no file, hence no place in the cache.
        options: dict[str, Any] = {
            "cache": Path(inspect.getfile(function)).exists(),
            "nogil": True,
            "error_model": "numpy",
        }
        options["_nrt"] = allocates
        compiler = numba.njit(forceinline=inline, **options) if signature is None else numba.njit(signature, **options)
        try:
            return compiler(function)
        finally:
            config.CACHE_DIR = saved

    return decorate
