"""The house's rules: imports run one way, only the command line prints, the core needs no extras and starts light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "noonward"
BASE = frozenset(
    {
        "units",
        "errors",
        "arguments",
        "seeding",
        "arrays",
        "blas",
        "compiled",
        "draws",
        "sorting",
        "files",
        "notices",
        "paging",
        "kernel_cache",
        "solver",
        "sources",
        "vectorised",
    }
)
WORLD = BASE | {"model", "forecasts", "data", "ledger"}
ALLOWED = {
    "units": frozenset[str](),
    "errors": frozenset[str](),
    "seeding": frozenset[str](),
    "arguments": frozenset({"errors"}),
    "arrays": frozenset[str](),
    "blas": frozenset[str](),
    "notices": frozenset[str](),
    "sources": frozenset[str](),
    "vectorised": frozenset[str](),
    "kernel_cache": frozenset({"notices"}),
    "compiled": frozenset({"units", "errors", "notices", "kernel_cache", "sources"}),
    "draws": frozenset({"compiled"}),
    "solver": frozenset[str](),
    "paging": frozenset({"notices"}),
    "sorting": frozenset({"arrays", "compiled", "paging"}),
    "files": frozenset({"units", "errors"}),
    "model": BASE,
    "forecasts": BASE | {"model"},
    "data": BASE | {"model"},
    "ledger": BASE | {"model"},
    "decision": WORLD,
    "engine": WORLD | {"decision"},
    "schedule": WORLD | {"decision"},
    "bound": WORLD | {"decision", "engine", "schedule"},
    "learn": WORLD | {"decision", "engine", "schedule", "bound"},
    "runtime": WORLD | {"decision", "engine", "schedule", "bound", "learn"},
    "evaluate": WORLD | {"decision", "engine", "schedule", "bound", "learn", "runtime"},
    "studies": WORLD | {"decision", "engine", "schedule", "bound", "learn", "runtime", "evaluate"},
    "bench": WORLD | {"decision", "engine", "schedule", "bound", "learn", "runtime", "evaluate", "live"},
    "live": WORLD | {"decision", "engine", "schedule"},
    "cli": WORLD
    | {"decision", "engine", "schedule", "bound", "learn", "runtime", "evaluate", "studies", "bench", "live"},
}
"""Parts a part may import: what stands before it in the house, and itself."""
DOOR = "cli/reproduce.py"
"""The only file of the product that may import studies: the four papers stand behind one command."""
INSIDE_LEARN = {
    "core": frozenset({"core"}),
    "algorithms": frozenset({"core", "algorithms"}),
    "tasks": frozenset({"core", "tasks"}),
    "train": frozenset({"core", "algorithms", "tasks", "train"}),
    "envs": frozenset({"core", "envs"}),
}
"""Rooms of ``learn`` that each of its rooms may import: algorithms and tasks know nothing of each other."""
NEUTRAL = ("core", "algorithms", "train")
"""Rooms of ``learn`` that know no kind of engine; the config of a run names the task's kind."""
OF_LIVE = frozenset({"starlette", "uvicorn", "httpx", "msgspec", "jinja2", "markupsafe"})
"""What the extra ``live`` brings, to that part alone."""
OF_EDGE = frozenset({"torch", "ray", "diffusers", "transformers", "PIL", "psutil"})
"""What the extra ``edge`` brings, to ``live/edge`` alone."""
EXTRAS = OF_LIVE | OF_EDGE | {"gymnasium", "pettingzoo", "tensorboard"}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """Returns the part of the house a source file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields (module, line) of every import, also of those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "noonward":
                yield from ((f"noonward.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


def breaches(name: str, source: str) -> list[str]:
    """Returns what a file (path within the package) imports against the rules."""
    part = name.split("/")[0].removesuffix(".py")
    found = []
    for module, line in imports(ast.parse(source)):
        words = module.split(".")
        own = (part, words[0]) == ("runtime", "ray") or (part == "live" and words[0] in OF_LIVE)
        own = own or (name.startswith("live/edge/") and words[0] in OF_EDGE)
        if words[0] in EXTRAS and part not in ("learn", "bench") and not own:
            found.append(f"{name}:{line} imports {module}, which only an extra brings")
        if words[0] != "noonward" or len(words) < 2 or words[1] == "__version__":
            continue
        target = words[1]
        if part == "__init__":
            continue
        if part == "learn" and "/" in name.removeprefix("learn/"):
            room = name.split("/")[1]
            if target == "learn" and len(words) > 2 and words[2] not in INSIDE_LEARN[room]:
                found.append(f"{name}:{line} imports {module}; learn/{room} may import {sorted(INSIDE_LEARN[room])}")
            if room in NEUTRAL and target in ("engine", "decision", "model"):
                found.append(f"{name}:{line} imports {module}; learn/{room} knows tasks, not engines")
        if target == "studies" and part == "cli" and name != DOOR:
            found.append(f"{name}:{line} imports {module}; only {DOOR} opens studies")
        if target != part and target not in ALLOWED[part]:
            found.append(f"{name}:{line} imports {module}; {part} may import {', '.join(sorted(ALLOWED[part]))}")
    return found


def test_every_part_of_the_package_has_a_place_in_the_house() -> None:
    parts = {part_of(path) for path in FILES} - {"__init__"}
    assert parts <= set(ALLOWED), f"{parts - set(ALLOWED)}: say in ALLOWED what it may import"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    assert not breaches(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("model/cluster/fleet.py", "from noonward.engine.run import run"),
        ("engine/cluster/engine.py", "import noonward.schedule.registry"),
        ("schedule/registry.py", "def f():\n    from noonward.engine.run import run"),
        ("ledger/settle.py", "from noonward import evaluate"),
        ("bound/cluster_energy.py", "import torch"),
        ("evaluate/compare.py", "import ray"),
        ("cli/compare.py", "def f():\n    from noonward.studies.dvfs_training.tables import paper_tables"),
        ("bench/plan.py", "from noonward.studies.load_shaping.reproduce import paper_problem"),
        ("evaluate/answer.py", "from noonward.studies.fine_tuning.reproduce import Half"),
        ("live/controller.py", "from noonward.runtime.runs import run_one"),
        ("live/controller.py", "import torch"),
        ("decision/brief.py", "import msgspec"),
        ("live/edge/controller.py", "import gymnasium"),
        ("cli/edge.py", "import ray"),
        ("learn/core/replay.py", "from noonward.learn.train.trainer import Trainer"),
        ("learn/algorithms/masac.py", "from noonward.learn.tasks.task import Task"),
        ("learn/train/trainer.py", "from noonward.engine.cluster.batch import BatchEngine"),
    ],
)
def test_a_breach_would_be_found(name: str, source: str) -> None:
    assert len(breaches(name, source)) >= 1


def module_of(name: str) -> str:
    """Returns the module of a file, from its path within the package."""
    return "noonward." + name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imported_modules(source: str) -> set[str]:
    """Returns the modules a file names in imports, those under TYPE_CHECKING and inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def circles(sources: dict[str, str]) -> list[list[str]]:
    """Returns the groups of files (path within the package -> source) that reach each other by imports."""
    of_module = {module_of(name): name for name in sources}
    graph = {
        name: {of_module[module] for module in imported_modules(source) if of_module.get(module, name) != name}
        for name, source in sources.items()
    }
    reach: dict[str, set[str]] = {}
    for name in graph:
        seen: set[str] = set()
        todo = [*graph[name]]
        while todo:
            here = todo.pop()
            if here not in seen:
                seen.add(here)
                todo += graph[here]
        reach[name] = seen
    groups = {
        frozenset({other for other in reach[name] if name in reach[other]}) for name in graph if name in reach[name]
    }
    return sorted(sorted(group) for group in groups)


def circles_of(room: str) -> list[list[str]]:
    """Returns the circles inside a room of the house."""
    paths = [path for path in FILES if path.relative_to(PACKAGE).parts[0] == room]
    return circles({path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in paths})


@pytest.mark.parametrize("room", sorted({part_of(path) for path in FILES if path.parent != PACKAGE}))
def test_no_files_of_a_room_import_each_other_in_a_circle(room: str) -> None:
    assert circles_of(room) == []


def test_a_circle_would_be_found() -> None:
    one = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from noonward.ledger import two"
    sources = {
        "ledger/one.py": one,
        "ledger/two.py": "def f():\n    import noonward.ledger.three",
        "ledger/three.py": "from noonward.ledger.one import A",
        "ledger/four.py": "from noonward.ledger.one import A",
    }
    assert circles(sources) == [["ledger/one.py", "ledger/three.py", "ledger/two.py"]]


@pytest.mark.parametrize(
    "path", [path for path in FILES if part_of(path) != "cli"], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_only_the_command_line_prints(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    lines = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert not lines


def _loaded_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; sys.stdout.write(' '.join(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import noonward", "import noonward.cli.main"])
def test_start_loads_nothing_heavy(statement: str) -> None:
    heavy = {"numba", "polars", "plotly", "pyarrow", "highspy", "pydantic", "yaml", "numpy"}
    assert not _loaded_after(statement) & heavy


def test_the_public_names_are_all_there() -> None:
    import noonward

    assert [name for name in noonward.__all__ if not hasattr(noonward, name)] == []
    assert set(noonward.__all__) <= set(dir(noonward))
