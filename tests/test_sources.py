"""What rests on what: imports are found in the syntax tree, and digests change with a file of the closure alone."""

import importlib.util
import shutil
from pathlib import Path

import pytest

import noonward
from noonward import sources

PACKAGE = Path(noonward.__file__).parent
KERNEL = "engine/cluster/kernels/each_slot.py"


@pytest.fixture
def copy(tmp_path):
    """A copy of the package's sources, and a function that loads the module under test from it, with empty caches."""
    folder = tmp_path / "noonward"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def load():
        spec = importlib.util.spec_from_file_location("copied_sources", folder / "sources.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return folder, load


@pytest.mark.parametrize(
    ("text", "files"),
    [
        (
            "from noonward.engine.cluster.kernels import (\n    loops,\n    world,\n)\n",
            {"engine/cluster/kernels/loops.py", "engine/cluster/kernels/world.py"},
        ),
        ("import noonward.units as u\n", {"units.py"}),
        ("from noonward import units\n", {"units.py"}),
        ("from noonward import rule, settle\n", {"decision/cluster/rule.py", "runtime/by_kind.py"}),
        ("from . import units\nfrom .model import limits\n", {"units.py", "model/limits.py"}),
        ("def f():\n    from noonward.units import HOUR_S\n", {"units.py"}),
        ("import numpy\ntext = 'from noonward.units import HOUR_S'\n# from noonward.errors import nearest\n", set()),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from noonward.units import HOUR_S\n"
            "else:\n    from noonward import errors\n",
            {"errors.py"},
        ),
    ],
)
def test_imports_are_found(copy, text, files):
    folder, load = copy
    (folder / "own.py").write_text(text, encoding="utf-8")
    module = load()
    found = {path.relative_to(folder).as_posix() for path in module.imported(folder / "own.py", module.Imports())}
    assert {path for path in found if not path.endswith("__init__.py")} == files


@pytest.mark.parametrize(
    ("edited", "changes"),
    [
        (KERNEL, True),
        ("engine/cluster/kernels/physics.py", True),
        ("units.py", True),  # through physics
        ("decision/cluster/view.py", True),
        ("decision/cluster/value.py", False),
        ("evaluate/report/page.py", False),
    ],
)
def test_a_digest_changes_with_the_files_of_the_closure_alone(copy, edited, changes):
    folder, load = copy

    def digest():
        return load().digest(load().closure([folder / KERNEL]))

    before = digest()
    text = (folder / edited).read_text(encoding="utf-8")
    (folder / edited).write_text(text + "\n", encoding="utf-8")
    assert (digest() != before) == changes
    (folder / edited).write_text(text, encoding="utf-8")
    assert digest() == before


def test_what_files_import_is_kept_by_their_content(copy, tmp_path, monkeypatch):
    folder, load = copy
    kept = tmp_path / "folder" / "imports.json"

    def closure(module):
        return module.closure([folder / KERNEL], module.Imports(kept))

    first = load()
    files = closure(first)
    assert files == first.closure([folder / KERNEL])
    with (folder / "units.py").open("a", encoding="utf-8") as file:
        file.write("\nimport noonward.evaluate.table\n")
    second = load()
    read = []
    parse = second.ast.parse
    monkeypatch.setattr(second.ast, "parse", lambda content, *name: read.append(name) or parse(content, *name))
    assert closure(second) == files | {folder / "evaluate" / "table.py"} | second.closure([folder / "units.py"])
    names = {Path(name[0]).name for name in read if name}
    assert "units.py" in names
    assert "each_slot.py" not in names


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a'])
def test_a_damaged_file_of_imports_is_done_without(copy, tmp_path, content):
    folder, load = copy
    kept = tmp_path / "imports.json"
    kept.write_text(content, encoding="utf-8")
    module = load()
    found = module.closure([folder / KERNEL], module.Imports(kept))
    assert found == module.closure([folder / KERNEL])
    assert len(module.Imports(kept)._modules) > 10
    (tmp_path / "file").touch()
    assert module.closure([folder / KERNEL], module.Imports(tmp_path / "file" / "imports.json")) == found


def test_an_import_inside_a_function_of_a_file_far_away_counts(copy):
    folder, load = copy
    before = load().closure([folder / KERNEL])
    with (folder / "units.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef late():\n    import noonward.evaluate.table\n")
    assert load().closure([folder / KERNEL]) - before >= {folder / "evaluate" / "table.py"}


def test_a_moved_file_has_another_digest(tmp_path):
    names = []
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n", encoding="utf-8")
        names.append(sources.digest([tmp_path / name]))
    assert len(set(names)) == 2


def test_the_package_digest_changes_with_any_file(copy):
    folder, load = copy
    before = load().package_digest()
    assert before == sources.package_digest()
    (folder / "cli" / "extra.py").touch()
    assert load().package_digest() != before


def test_a_module_without_source_is_an_error():
    for module in ("noonward.no_such_module", "itertools", "no_such_package.module"):
        with pytest.raises(ValueError, match="no source file"):
            sources.file_of(module)
