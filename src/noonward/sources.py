"""Which of this package's files something rests on: its module and all that it imports, directly or not.

Imports are read from the syntax tree, those inside functions included. Imports for type checkers alone
(``if TYPE_CHECKING:``) do not count: nothing runs because of them. What a file imports can be kept on disk by its
content: to read the syntax of all files takes longer than anything else that a command does before it begins.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent
NAME: Final = "noonward"
"""Name of the package."""


def file_of(module: str) -> Path:
    """Returns the file of a module.

    Args:
        module: Name of a module, of this package or of another.

    Raises:
        ValueError: There is no such module, or it has no file of Python source.

    Example:
        >>> file_of("noonward.units").name
        'units.py'
    """
    found = _module_file(module)
    if found is not None:
        return found
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ValueError(f"module {module!r} has no source file")
    return Path(spec.origin)


class Imports:
    """What files import, by their content.

    Args:
        kept: File that keeps it from one process to the next; None: nothing is kept. One that is damaged or cannot be
            written is done without.
    """

    def __init__(self, kept: Path | None = None) -> None:
        self._kept, self._new = kept, False
        self._modules: dict[str, list[str]] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            content = {} if kept is None else json.loads(kept.read_text(encoding="utf-8"))
            self._modules = {str(key): [str(name) for name in names] for key, names in content.items()}

    def modules(self, path: Path) -> list[str]:
        """Returns names that may be modules of this package which a file imports."""
        content = path.read_bytes()
        place = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""
        key = hashlib.sha256(place.encode() + b"\n" + content).hexdigest()
        if key not in self._modules:
            names = dict.fromkeys(_modules(ast.parse(content, str(path)), path))
            self._modules[key] = [name for name in names if name.partition(".")[0] == NAME]
            self._new = True
        return self._modules[key]

    def write(self) -> None:
        """Writes what is new."""
        if self._kept is None or not self._new:
            return
        part = self._kept.with_name(f"{self._kept.name}.{os.getpid()}.part")
        with contextlib.suppress(OSError):
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(self._modules), encoding="utf-8")
            part.replace(self._kept)
        self._new = False


def closure(sources: Iterable[Path], imports: Imports | None = None) -> frozenset[Path]:
    """Returns files and all files of this package that they import, directly or not.

    Args:
        sources: Files of Python source, of this package or not.
        imports: What is known of files; None: nothing.
    """
    known = Imports() if imports is None else imports
    files = set(sources)
    new = list(files)
    while new:
        more = {file for path in new for file in imported(path, known)} - files
        files |= more
        new = list(more)
    known.write()
    return frozenset(files)


@functools.cache
def imported(path: Path, imports: Imports) -> tuple[Path, ...]:
    """Returns the files of this package that a file imports.

    Args:
        path: File of Python source.
        imports: What is known of files.
    """
    found: dict[Path, None] = {}
    for module in imports.modules(path):
        file = _module_file(_homes().get(module.removeprefix(f"{NAME}."), module))
        if file is not None and file != path:
            found[file] = None
    return tuple(found)


def digest(files: Iterable[Path], about: str = "") -> str:
    """Returns a digest of names and content of files.

    Args:
        files: Files; those of this package count by their place in it, others by their name.
        about: Text that counts too.
    """
    made = hashlib.sha256(about.encode())
    for name, path in sorted((_counted_as(path), path) for path in set(files)):
        made.update(f"\n{name}\n".encode())
        made.update(_content(path, path.stat().st_mtime_ns))
    return made.hexdigest()[:16]


@functools.cache
def _counted_as(path: Path) -> str:
    """Returns the name that a file has in digests."""
    return str(path.relative_to(PACKAGE) if path.is_relative_to(PACKAGE) else path.name)


@functools.cache
def _content(path: Path, changed_ns: int) -> bytes:
    """Returns a digest of a file's content: one file is part of what many things rest on."""
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def package_digest() -> str:
    """Returns a digest of every source file and every packaged file: equal for equal installations."""
    return digest(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@functools.cache
def _module_file(module: str) -> Path | None:
    """Returns the file of a module or a sub-package of this package; None for any other name."""
    first, *rest = module.split(".")
    if first != NAME:
        return None
    at = PACKAGE.joinpath(*rest)
    return next((file for file in (at.with_suffix(".py"), at / "__init__.py") if rest and file.is_file()), None)


def _modules(tree: ast.Module, path: Path) -> Iterator[str]:
    """Yields the modules that a file imports, and names that may be modules."""
    for node in _run_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # a relative import, as files of a package may have
                if not path.is_relative_to(PACKAGE):
                    continue
                parts = (NAME, *path.relative_to(PACKAGE).parts)
                base = ".".join([*parts[: len(parts) - node.level], *filter(None, [base])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields all statements and what holds statements, but not those under ``if TYPE_CHECKING:``."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for other in node.orelse:
                yield other
                yield from _run_nodes(other)
            continue
        yield node
        yield from _run_nodes(node)


@functools.cache
def _homes() -> dict[str, str]:
    """Returns the modules of the names that this package itself offers, which it imports when they are first used."""
    for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "_HOMES":
            homes: dict[str, str] = ast.literal_eval(node.value) if node.value is not None else {}
            return homes
    raise AssertionError("the package says nowhere where its names are")
