"""Which of this package's files something rests on: its module and all that it imports, directly or not.

Imports are read from the syntax tree, those inside functions included. Imports for type checkers alone
(``if TYPE_CHECKING:``) do not count: nothing runs because of them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
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


def closure(sources: Iterable[Path]) -> frozenset[Path]:
    """Returns files and all files of this package that they import, directly or not.

    Args:
        sources: Files of Python source, of this package or not.
    """
    files = set(sources)
    new = list(files)
    while new:
        more = {file for path in new for file in imported(path)} - files
        files |= more
        new = list(more)
    return frozenset(files)


@functools.cache
def imported(path: Path) -> tuple[Path, ...]:
    """Returns the files of this package that a file imports.

    Args:
        path: File of Python source.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    found: dict[Path, None] = {}
    for module in _modules(tree, path):
        file = _module_file(module)
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
    named = {path: str(path.relative_to(PACKAGE) if path.is_relative_to(PACKAGE) else path.name) for path in files}
    for path, name in sorted(named.items(), key=lambda item: item[1]):
        made.update(f"\n{name}\n".encode())
        made.update(hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()[:16]


@functools.cache
def package_digest() -> str:
    """Returns a digest of every source file and every packaged file: equal for equal installations."""
    return digest(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


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
            if base == NAME:
                yield from (_homes().get(alias.name, f"{base}.{alias.name}") for alias in node.names)
            else:
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields all nodes but those under ``if TYPE_CHECKING:``."""
    for node in ast.iter_child_nodes(tree):
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
