"""The cache of compiled functions on disk: one file a function and signature, whole or not at all, with a checksum.

numba's own cache is not used: it keeps an index beside the files, which processes that compile at once can leave
damaged, and it does not see that a function was compiled into a caller of another file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import llvmlite.binding as llvm
from numba.core.caching import _Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from noonward.notices import tell

MARK: Final = b"noonward kernel 1\n"
"""First bytes of a file; the checksum follows, then the content."""
CHECKSUM_BYTES: Final = 32


class ApartLibrary(JITCodeLibrary):
    """The machine code of a function that compiled functions call where it lies, instead of taking its code in."""

    kept: tuple[Any, ...] | None = None
    """What is kept of it on disk, once it was read from there."""

    def _get_module_for_linking(self) -> Any:
        """Returns an empty module: callers declare the function themselves."""
        self._ensure_finalized()
        return llvm.parse_assembly(str(self._codegen._create_empty_module(self.name)))

    def serialize_using_object_code(self) -> tuple[Any, ...]:
        """Returns machine code and the names of its functions."""
        return self.whole()[:3]

    def whole(self) -> tuple[Any, ...]:
        """Returns all that is kept of it on disk."""
        if self.kept is None:
            self._ensure_finalized()
            names = [each.name for each in self._final_module.functions if not each.is_declaration]
            text = "".join(f'define void @"{name}"() {{ unreachable }}\n' for name in names)
            module = llvm.parse_assembly(f"{self._codegen._create_empty_module(self.name)}\n{text}")
            self.kept = self.name, "object", (self._get_compiled_object(), module.as_bitcode()), names
        return self.kept


def _callees(library: Any) -> list[ApartLibrary]:
    """Returns the libraries apart whose functions those of a library call, directly or not, callees first."""
    found: dict[ApartLibrary, None] = {}
    for each in library._linking_libraries:
        found |= dict.fromkeys(_callees(each))
        if isinstance(each, ApartLibrary):
            found[each] = None
    return list(found)


def _load_callee(codegen: Any, kept: tuple[Any, ...]) -> ApartLibrary:
    """Returns a library as it was kept; without code, if its functions are here already, for callers yet to come."""
    *serialized, names = kept
    if all(map(codegen._engine.is_symbol_defined, names)):
        return _as_apart(JITCodeLibrary(codegen, kept[0]), kept)
    return _as_apart(codegen.unserialize_library(tuple(serialized)), kept)


def _as_apart(library: Any, kept: tuple[Any, ...]) -> ApartLibrary:
    """Makes a library that was read from disk one whose functions are called where they lie."""
    library.__class__ = ApartLibrary
    library.kept = kept
    return cast(ApartLibrary, library)


class KernelCache(_Cache):
    """Keeps what numba compiled of one function.

    A file that is truncated, corrupt or of another numba is dropped with its whole folder, and its functions are
    compiled again. The folder is that of the function's sources (``compiled.cache_folder``), so a file never outlives
    an edit.

    Args:
        function: The Python function.
        folder: Folder of its compiled forms.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self.folder = folder
        self._name = f"{function.__module__}.{function.__qualname__}-{function.__code__.co_firstlineno}"
        self._used = True

    @property
    def cache_path(self) -> str:
        """Folder of the files."""
        return str(self.folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Returns the compiled function of a signature, or None if there is none."""
        target_context.refresh()
        path = self._path(sig, target_context)
        try:
            data = path.read_bytes() if self._used else None
        except OSError:
            data = None
        if data is None:
            tell("compile", self._name)
            return None
        try:
            content = data[len(MARK) + CHECKSUM_BYTES :]
            if not data.startswith(MARK + hashlib.sha256(content).digest()):
                raise ValueError("checksum")
            reduced, apart, callees = pickle.loads(content)
            codegen = target_context.codegen()
            called = [_load_callee(codegen, each) for each in callees]
            made = CompileResult._rebuild(target_context, *reduced)
            made.library._linking_libraries = called
            if apart is not None:
                _as_apart(made.library, apart)
            return made
        except Exception:  # whatever a damaged pickle does
            shutil.rmtree(self.folder, ignore_errors=True)
            tell("damaged", str(path))
            tell("compile", self._name)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Writes the compiled function of a signature; a cache that cannot be written is done without."""
        if not self._used or data.lifted or data.library.has_dynamic_globals:
            return
        reduced = data._reduce()
        callees = tuple(each.whole() for each in _callees(data.library))
        content = dumps((reduced, data.library.whole() if isinstance(data.library, ApartLibrary) else None, callees))
        path = self._path(sig, data.target_context)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(MARK + hashlib.sha256(content).digest() + content)
            part.replace(path)

    def enable(self) -> None:
        """Has the cache used."""
        self._used = True

    def disable(self) -> None:
        """Has the cache left alone."""
        self._used = False

    def flush(self) -> None:
        """Drops the function's files."""
        for path in self.folder.glob(f"{self._name}-*.kernel"):
            path.unlink(missing_ok=True)

    def _path(self, sig: Any, target_context: Any) -> Path:
        """Returns the file of a signature for this kind of processor."""
        of = repr((str(sig), target_context.codegen().magic_tuple()))
        return self.folder / f"{self._name}-{hashlib.sha256(of.encode()).hexdigest()[:16]}.kernel"
