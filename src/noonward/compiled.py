"""Compiled functions: numba with an on-disk cache that knows which sources a function rests on.

numba keys its cache by the file a function stands in, so a function compiled into a caller of another file would
survive its own edit. Here a function's folder carries a digest of its file and of all of the package's files that it
imports, directly or not: an edit of one of them starts an empty folder, an edit elsewhere compiles nothing again.
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

from noonward.kernel_cache import KernelCache
from noonward.notices import listen, tell
from noonward.sources import Imports, closure, digest

CACHE_VARIABLE = "NOONWARD_CACHE_DIR"
"""Environment variable that names another folder for compiled functions."""
_in_use: set[Path] = set()
_compiled: list[str] = []
listen(lambda kind, about: _compiled.append(about) if kind == "compile" else None)


def compilations() -> int:
    """Returns how many functions this process has compiled so far, instead of reading them from the cache."""
    return len(_compiled)


def cache_base() -> Path:
    """Returns the folder of all compiled functions of this package."""
    base = os.environ.get(CACHE_VARIABLE) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "noonward" / "kernels"


@functools.cache
def cache_folder(source: Path) -> Path:
    """Returns the folder of a source file's compiled functions, as the file and all it imports of this package stand.

    Args:
        source: File that exists.
    """
    return cache_base() / digest(closure([source], _imports(cache_base())), f"numba {numba.__version__}")


@functools.cache
def _imports(base: Path) -> Imports:
    """Returns what is known of imports, kept beside the compiled functions."""
    return Imports(base / "imports-1.json")


def prune_cache(keep: int = 3) -> None:
    """Removes compiled functions of older states of the sources.

    Args:
        keep: Folders that stay beside each one in use, the newest ones.
    """
    others = [folder for folder in cache_base().glob("*") if folder.is_dir() and folder not in _in_use]
    for folder in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[keep * len(_in_use) :]:
        shutil.rmtree(folder, ignore_errors=True)


class _Library(JITCodeLibrary):
    """The code of a function that is pasted into its callers: kept as it goes into them, never made machine code."""

    @property
    def codegen(self) -> Any:
        """The code generator, without addresses for a function that has none."""
        return _WithoutAddresses(self._codegen)

    def get_pointer_to_function(self, name: str) -> int:
        """Returns no address."""
        self._ensure_finalized()
        return 0

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _WithoutAddresses:
    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        """Does nothing: callers have environments of their own."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerWithoutMachineCode(NativeLowering):
    _name = "lower_without_machine_code"

    def run_pass(self, state: Any) -> bool:
        """Lowers into a library of the kind above."""
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        return bool(super().run_pass(state))


class _PastedCompiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        """Returns numba's own passes with another last step."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (_LowerWithoutMachineCode if step is NativeLowering else step, why) for step, why in passes.passes
        ]
        passes._finalized = False
        passes.finalize()
        return [passes]


class _Pasted(CPUDispatcher):
    """A function that is pasted into its callers; called from Python, it is compiled once more, by itself."""

    def compile(self, sig: Any) -> Any:
        """Prepares the function for a caller's types."""
        if not self.overloads:
            tell("part", self.py_func.__name__)
        return super().compile(sig)

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function from Python."""
        if "_alone" not in self.__dict__:
            self._alone = numba.njit(**_options(allocates=bool(self.targetoptions["_nrt"])))(self.py_func)
        return self._alone(*arguments)


class _OfOneSignature(CPUDispatcher):
    """A function that was compiled for the one signature it has."""

    def get_compile_result(self, sig: Any) -> Any:
        """Returns what was compiled, without a search by the types of all arguments, on each call it is passed in."""
        (only,) = self.overloads.values()
        return only


class _OnDemand(CPUDispatcher):
    """A function of one signature, compiled when it is first needed."""

    signature: Any

    def _ready(self) -> CPUDispatcher:
        kind: Any = _OfOneSignature
        self.__class__ = kind
        self.compile(self.signature)
        self.disable_compile()
        return self

    def __call__(self, *arguments: Any) -> Any:
        """Compiles the function and calls it."""
        return self._ready()(*arguments)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compiles the function for a caller."""
        return self._ready().get_call_template(args, kws)

    @property
    def _numba_type_(self) -> Any:
        return self._ready()._numba_type_


def _options(*, allocates: bool) -> dict[str, Any]:
    """Returns numba's options for all functions."""
    return {"nogil": True, "error_model": "numpy", "_nrt": allocates}


def kernel(
    signature: Any = None,
    *,
    inline: bool = False,
    allocates: bool = True,
    stands_for: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function to machine code when it is first called, cached on disk.

    Args:
        signature: numba signature; given for functions that are passed to others (schedulers' rules), which need one
            address, and for those that must exist once. Without it the function compiles for the types it is given.
        inline: Have the function's code pasted into its callers. It has no machine code and no file in the cache of
            its own.
        allocates: Whether the function makes arrays. One that only reads and writes those it is given goes without
            reference counts, several times faster where it handles many.
        stands_for: Function under whose file and name it is compiled and cached, where it was made from one; itself
            otherwise. Two functions of one name and signature would share one symbol once they are loaded from the
            cache, and one of them would run in the other's place.

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
        options = {"nopython": True, "boundscheck": None, **_options(allocates=allocates)}
        if inline:
            options |= {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
            return _Pasted(function, locals={}, targetoptions=options, pipeline_class=_PastedCompiler)
        known = function if stands_for is None else stands_for
        if known is not function:
            function.__module__, function.__qualname__ = known.__module__, f"{known.__qualname__}.{function.__name__}"
            function.__name__ = f"{known.__name__}_{function.__name__}"
        made: Any = (CPUDispatcher if signature is None else _OnDemand)(function, locals={}, targetoptions=options)
        if signature is not None:
            made.signature = signature
        source = Path(inspect.getfile(known))
        if source.exists():  # a function typed at a prompt has no file, hence no place in the cache
            folder = cache_folder(source)
            _in_use.add(folder)
            made._cache = KernelCache(known, folder)
        return made

    return decorate
