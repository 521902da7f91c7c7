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
from llvmlite import ir
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering
from numba.extending import intrinsic

from noonward.kernel_cache import ApartLibrary, KernelCache
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
    return cache_base() / digest(closure([source], _imports(cache_base())), f"numba {numba.__version__}, files 2")


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
    """The code of a function that goes into its callers: kept as it goes into them, never made machine code."""

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


def _compiler(kind: type[JITCodeLibrary]) -> type[CompilerBase]:
    """Returns numba's compiler with a last step that lowers into a library of a kind."""

    @register_pass(mutates_CFG=True, analysis_only=False)
    class Lower(NativeLowering):
        _name = f"lower_into{kind.__name__}"

        def run_pass(self, state: Any) -> bool:
            """Lowers into a library of that kind, which keeps its machine code, if it has any, for the cache."""
            state.library = kind(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
            return bool(super().run_pass(state))

    class Compiler(CompilerBase):
        def define_pipelines(self) -> list[Any]:
            """Returns numba's own passes with another last step."""
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.passes = [(Lower if step is NativeLowering else step, why) for step, why in passes.passes]
            passes._finalized = False
            passes.finalize()
            return [passes]

    return Compiler


_PART, _APART = _compiler(_Library), _compiler(ApartLibrary)


def _plain(of: Any) -> Any:
    """Returns the type that stands for an argument's: constants and small whole numbers have no code of their own."""
    of = types.unliteral(of)
    return types.int64 if isinstance(of, types.Integer) and of != types.uint64 else of


class _OfPlainTypes(CPUDispatcher):
    """A function that compiled callers have compiled for plain types alone."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Prepares the function for a caller."""
        return super().get_call_template(tuple(map(_plain, args)), {name: _plain(of) for name, of in kws.items()})


class _Part(_OfPlainTypes):
    """A function whose code goes into its callers, compiled for them alone."""

    def compile(self, sig: Any) -> Any:
        """Prepares the function for a caller's types."""
        if not self.overloads:
            tell("part", self.py_func.__name__)
        return super().compile(sig)


class _Pasted(_Part):
    """A function that is pasted into its callers; called from Python, it is compiled once more, by itself."""

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function from Python."""
        if "_alone" not in self.__dict__:
            self._alone = numba.njit(**_options(allocates=bool(self.targetoptions["_nrt"])))(self.py_func)
        return self._alone(*arguments)


class _Called(CPUDispatcher):
    """A function with an entry for Python; for compiled functions it is a part of them."""

    part: Any

    @property
    def _numba_type_(self) -> Any:
        return self.part._numba_type_


class _OfOneSignature(CPUDispatcher):
    """A function that was compiled for the one signature it has."""

    def get_compile_result(self, sig: Any) -> Any:
        """Returns what was compiled, without a search by the types of all arguments, on each call it is passed in."""
        (only,) = self.overloads.values()
        return only


def address_of(function: Any) -> int:
    """Returns where the machine code of a function of one signature lies, for ``call_at``; good while it lives.

    Args:
        function: Made by ``kernel`` with a signature.
    """
    ready: Any = function._ready() if isinstance(function, _OnDemand) else function
    if "_address" not in ready.__dict__:
        (only,) = ready.overloads.values()
        ready._address = only.library.get_pointer_to_function(only.fndesc.llvm_cfunc_wrapper_name)
    return int(ready._address)


def _call_at(context: Any, address: Any, argument: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = context.get_value_type(types.int64)
        function = builder.inttoptr(args[0], ir.FunctionType(number, [number]).as_pointer())
        return builder.call(function, [args[1]])

    return types.int64(types.int64, types.int64), generate


call_at: Any = intrinsic(_call_at)
"""In compiled code, (address of a function of signature int64(int64), argument) -> what it returns."""


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


_LONG = 600
"""Length of a function's bytecode from which on the compiler judges whether to paste it, bytes: pasting all takes four
times as long and gains 0 to 9 % of speed."""
_NO_ENTRY = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of a function that Python never calls."""


def _options(*, allocates: bool) -> dict[str, Any]:
    """Returns numba's options for all functions."""
    return {"nogil": True, "error_model": "numpy", "_nrt": allocates}


def kernel(
    signature: Any = None,
    *,
    inline: bool = False,
    apart: bool = False,
    allocates: bool = True,
    stands_for: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function to machine code when it is first called, cached on disk.

    Args:
        signature: numba signature; given for functions that are passed to others (schedulers' rules), which need one
            address, and for those that must exist once. Without it the function compiles for the types it is given.
        inline: Have the function's code pasted into its callers, unless it is long. It has no machine code and no file
            in the cache of its own.
        apart: Have compiled callers call the function where it lies, instead of taking its code in: for long functions
            that work long per call. It is compiled once for them all and for Python, and not again with each of them.
            One with a signature is apart in any case.
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
            short = len(function.__code__.co_code) < _LONG
            return _Pasted(
                function, locals={}, targetoptions={**options, "forceinline": short, **_NO_ENTRY}, pipeline_class=_PART
            )
        known = function if stands_for is None else stands_for
        if known is not function:
            function.__module__, function.__qualname__ = known.__module__, f"{known.__qualname__}.{function.__name__}"
            function.__name__ = f"{known.__name__}_{function.__name__}"
        if apart and signature is None:
            made: Any = _OfPlainTypes(
                function, locals={}, targetoptions={**options, "no_cfunc_wrapper": True}, pipeline_class=_APART
            )
        elif signature is None:
            made = _Called(function, locals={}, targetoptions={**options, "no_cfunc_wrapper": True})
            made.part = _Part(function, locals={}, targetoptions={**options, **_NO_ENTRY}, pipeline_class=_PART)
        else:
            made = _OnDemand(function, locals={}, targetoptions=options, pipeline_class=_APART)
            made.signature = signature
        source = Path(inspect.getfile(known))
        if source.exists():  # a function typed at a prompt has no file, hence no place in the cache
            folder = cache_folder(source)
            _in_use.add(folder)
            made._cache = KernelCache(known, folder)
        return made

    return decorate
