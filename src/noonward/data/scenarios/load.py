"""Scenario files: packaged or own YAML, validated whole, with options set from outside."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from noonward.data.cooling import with_stated_pue
from noonward.data.events import with_stated_events
from noonward.data.gpus_by_time import with_stated_connections, with_stated_gpus
from noonward.data.jobs.dated import is_dated, may_record_starts
from noonward.data.system_load import with_stated_meters
from noonward.data.table_file import column_names
from noonward.data.yaml_text import parse_yaml, short
from noonward.errors import ScenarioError, nearest
from noonward.model.cluster.scenario import Scenario
from noonward.model.kinds import CLUSTER, find_kind

BY_PLACE = ("origin_shares", "peak_hours", "ranges")
"""Mappings whose keys are ingress points, zones or classes with their sites."""
FORMER_KEYS = {"reference_policy": "baseline"}
"""Earlier names of a scenario's own keys, which files and settings may still use."""


def packaged_scenarios() -> tuple[str, ...]:
    """Returns the names of the scenarios that come with the package."""
    folder = resources.files("noonward.data") / "scenarios"
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_scenario(name_or_path: str | Path, settings: Iterable[str] = ()) -> Any:
    """Returns a packaged scenario by name, or one's own by the path of its YAML file.

    Its key ``kind`` says which model it is of (``noonward.model.kinds``): a ``Scenario`` for ``cluster``, the default.

    Args:
        name_or_path: Name of a packaged scenario, or path ending in .yaml or .yml.
        settings: Changes of single values, ``"economics.carbon_usd_per_t=50"``; list positions by number
            (``"fleet.sites.0.gpus=40"``). The value is read as YAML.

    Raises:
        ScenarioError: No such scenario, bad YAML, unknown keys, values out of range; the message names
            file, key, value and what is allowed.

    Example:
        >>> load_scenario("fine-tuning", ["economics.carbon_usd_per_t=50"]).economics.carbon_usd_per_t
        50.0
    """
    text, source = _read(name_or_path)
    content = parse_yaml(text, source)
    if not isinstance(content, dict):
        raise ScenarioError(f"{source} holds no mapping; start from 'noonward scenario show fine-tuning'")
    content = _extended(_with_present_keys(content, str(source)), str(source))
    for setting in settings:
        _set(content, setting)
    base = Path(name_or_path).parent if isinstance(source, Path) else Path()
    return scenario_from(content, str(source), base)


def scenario_from(content: Mapping[str, Any], source: str = "scenario", base: Path | None = None) -> Any:
    """Returns a scenario from its content.

    Args:
        content: What the YAML file holds.
        source: File name for messages.
        base: Folder that relative paths in the scenario start from.

    Raises:
        ScenarioError: As ``load_scenario``.
        DataError: A file of PUE, GPUs or connections cannot be read.
    """
    content = _with_present_keys(content, source)
    try:
        model: type[BaseModel] = find_kind(content.get("kind", CLUSTER.name)).part("scenario")
    except ScenarioError as error:
        raise ScenarioError(f"{source}: kind: {error}") from None
    try:
        scenario = model.model_validate(content)
    except ValidationError as error:
        raise ScenarioError(explained(error, source, content, model)) from error
    placed = scenario if base is None or base == Path() else _rebase(scenario, base)
    if not isinstance(placed, Scenario):
        return placed
    fleet = with_stated_meters(with_stated_connections(with_stated_gpus(with_stated_pue(placed.fleet))))
    return with_stated_events(placed if fleet is placed.fleet else placed.model_copy(update={"fleet": fleet}))


def _extended(content: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns a file's content put over that of the packaged scenario it ``extends``, if it names one."""
    if "extends" not in content:
        return content
    base, known = content["extends"], packaged_scenarios()
    if base not in known:
        raise ScenarioError(f"{source}: extends the unknown scenario {base!r}; {nearest(str(base), known)}")
    text, name = _read(base)
    below = _extended(_with_present_keys(parse_yaml(text, name), str(name)), str(name))
    return dict(_merged(below, {key: value for key, value in content.items() if key != "extends"}))


def _with_present_keys(content: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns a scenario's content with each key under its present name (``FORMER_KEYS``).

    Raises:
        ScenarioError: A key is there under both names.
    """
    for former, present in FORMER_KEYS.items():
        if former in content and present in content:
            raise ScenarioError(f"{source}: {former} is the earlier name of {present}; state only {present}")
    return {FORMER_KEYS.get(key, key): value for key, value in content.items()}


def _merged(below: Any, above: Any) -> Any:
    """Returns two contents as one: mappings key by key, anything else as it stands above.

    A mapping with another ``source`` (of jobs, of signals) or ``law`` replaces the one below whole; so does one whose
    keys are names of places (``BY_PLACE``), since the places may be others.
    """
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    if any(below.get(tag) != above.get(tag, below.get(tag)) for tag in ("source", "law")):
        return above
    return below | {key: value if key in BY_PLACE else _merged(below.get(key), value) for key, value in above.items()}


def _read(name_or_path: str | Path) -> tuple[str, str | Path]:
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise ScenarioError(f"scenario file {path} does not exist; check the path")
        try:
            return path.read_text(encoding="utf-8"), path
        except UnicodeDecodeError as error:
            raise ScenarioError(f"scenario file {path} is not UTF-8 text ({error}); save it as UTF-8") from error
    known = packaged_scenarios()
    if str(name_or_path) not in known:
        raise ScenarioError(
            f"unknown scenario {str(name_or_path)!r}; {nearest(str(name_or_path), known)} "
            "(or give the path of a .yaml file)"
        )
    return (resources.files("noonward.data") / "scenarios" / f"{name_or_path}.yaml").read_text("utf-8"), str(
        name_or_path
    )


def _set(content: dict[str, Any], setting: str) -> None:
    path, separator, value = setting.partition("=")
    if not separator or not path:
        raise ScenarioError(f"setting {setting!r} is not of the form key.key=value")
    keys = FORMER_KEYS.get(path, path).split(".")
    node: Any = content
    for depth, key in enumerate(keys):
        where = ".".join(keys[:depth]) or "the scenario"
        if isinstance(node, list):
            if not re.fullmatch("[0-9]{1,9}", key) or int(key) >= len(node):
                raise ScenarioError(f"setting {setting!r}: {where} has the positions 0 to {len(node) - 1}, not {key!r}")
            index: Any = int(key)
        elif isinstance(node, dict):
            index = key
        else:
            raise ScenarioError(f"setting {setting!r}: {where} holds a single value, so it has no key {key!r}")
        if depth == len(keys) - 1:
            node[index] = parse_yaml(value, f"setting {short(setting)}: the value")
            return
        if isinstance(node, dict) and key not in node:
            node[key] = {}
        node = node[index]


def _rebase(spec: Any, base: Path) -> Any:
    """Returns a specification with relative paths taken from a folder."""
    if isinstance(spec, Path):
        return spec if spec.is_absolute() else base / spec
    if isinstance(spec, tuple):
        return tuple(_rebase(item, base) for item in spec)
    if isinstance(spec, BaseModel):
        return spec.model_copy(update={name: _rebase(getattr(spec, name), base) for name in type(spec).model_fields})
    return spec


@functools.cache
def _keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(model.model_fields)


def _place(problem: Mapping[str, Any], content: Any) -> str:
    """Returns a problem's place as a path of the file's own keys, without the names of the types tried there."""
    keys: list[str] = []
    node = content
    for part in problem["loc"]:
        if (isinstance(node, Mapping) and part in node) or (
            isinstance(node, list | tuple) and isinstance(part, int) and part < len(node)
        ):
            node = node[part]
        elif problem["type"] != "missing" or part != problem["loc"][-1]:
            continue
        keys.append(str(part))
    return ".".join(keys) or "scenario"


def explained(error: ValidationError, source: str, content: Any, model: type[BaseModel], what: str = "scenario") -> str:
    """Returns one line per problem of a file: where, what, value, what is allowed.

    Args:
        error: What the model refused.
        source: Name of the file, for the first line.
        content: What the file holds.
        model: The model, whose keys are proposed for unknown ones.
        what: What the file should be.
    """
    lines = []
    problems = error.errors()
    places = [problem["loc"] for problem in problems]
    for problem in problems:
        place = problem["loc"]
        # A list whose items are refused is also reported as too short: that says nothing new.
        if problem["type"] == "too_short" and any(other != place and other[: len(place)] == place for other in places):
            continue
        where = _place(problem, content)
        if problem["type"] == "extra_forbidden":
            key = str(problem["loc"][-1])
            lines.append(f"{where}: unknown key; {nearest(key, _siblings(problem['loc'][:-1], model))}")
        elif problem["type"] == "missing":
            lines.append(f"{where}: missing; give it a value")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            value = problem.get("input")
            shown = "" if isinstance(value, dict | list | tuple | BaseModel) else f" (value: {short(value)})"
            if not message[:2].isupper():  # an abbreviation, as in "GPU type", stays as it is
                message = message[:1].lower() + message[1:]
            lines.append(f"{where}: {message}{shown}")
    head = f"{source} is not a valid {what} ({len(lines)} problem{'s' if len(lines) > 1 else ''}):"
    return "\n  ".join([head, *lines])


def _siblings(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, ...]:
    """Returns the keys known at a place of a scenario, found by walking its JSON schema."""
    schema = model.model_json_schema()
    nodes = [schema]

    def resolve(node: dict[str, Any]) -> list[dict[str, Any]]:
        if "$ref" in node:
            return resolve(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]])
        options = node.get("anyOf", []) + node.get("oneOf", [])
        return [leaf for option in options for leaf in resolve(option)] if options else [node]

    for part in location:
        below: list[dict[str, Any]] = []
        for node in nodes:
            for leaf in resolve(node):
                if isinstance(part, int):
                    below += [leaf["items"]] if "items" in leaf else leaf.get("prefixItems", [])[part : part + 1]
                elif part in leaf.get("properties", {}):
                    below.append(leaf["properties"][part])
                elif isinstance(leaf.get("additionalProperties"), dict):
                    below.append(leaf["additionalProperties"])
                elif part == leaf.get("properties", {}).get("source", {}).get("const"):
                    below.append(leaf)  # the tag of a discriminated union
        nodes = below or nodes
    keys = [key for node in nodes for leaf in resolve(node) for key in leaf.get("properties", {})]
    return tuple(dict.fromkeys(keys)) or _keys_of(model)


def with_files(scenario: Any, signals: Sequence[Path] = (), jobs: Path | None = None) -> Any:
    """Returns a scenario that takes its signals or jobs from files.

    Args:
        scenario: Scenario; its other settings stay.
        signals: Tidy signal files, a later one filling what the earlier leave unknown; none: as the scenario says.
        jobs: File of jobs, as the scenario's kind takes them; None: as the scenario says.

    Raises:
        ScenarioError: A file does not exist, or is of no use to the scenario.
    """
    for path in [*signals, *([] if jobs is None else [jobs])]:
        if not path.is_file():
            raise ScenarioError(f"file {path} does not exist; check the path")
    content = find_kind(scenario.kind).part("with_files")(scenario, signals, jobs)
    return scenario_from(content, scenario.name)


def with_settings(scenario: Any, settings: Iterable[str]) -> Any:
    """Returns a scenario with single values changed (``load_scenario`` states the form)."""
    content = scenario.model_dump(mode="json")
    for setting in settings:
        _set(content, setting)
    return scenario_from(content, scenario.name)


def with_days(scenario: Any, first: date, last: date | None = None) -> Any:
    """Returns a scenario whose window begins on a UTC day, whatever else it says about days.

    Args:
        scenario: Scenario of kind ``cluster``.
        first: Day the window starts on, at 00:00 UTC.
        last: Last day of the window; None: the window keeps its length.

    Raises:
        ScenarioError: The last day is before the first, or the scenario is of another kind.
    """
    if scenario.kind != CLUSTER.name:
        raise ScenarioError(f"--from pins the window of scenarios of kind {CLUSTER.name}; this one is {scenario.kind}")
    if last is not None and last < first:
        raise ScenarioError(f"--to {last} is before --from {first}; give a last day on or after the first")
    content = scenario.model_dump(mode="json")
    content["start"] = first.isoformat()
    if last is not None:
        content["window_h"] = 24 * ((last - first).days + 1)
    return scenario_from(content, scenario.name)


def content_with_files(scenario: Scenario, signals: Sequence[Path], jobs: Path | None) -> dict[str, Any]:
    """Returns the content of a cluster scenario that takes its signals or jobs from files.

    Args:
        scenario: Scenario.
        signals: Tidy signal files.
        jobs: A complete job table (a file with a column ``origin`` or ``submit_time``), a job log of a known system,
            or a trace whose gangs and durations the scenario's fine-tuning jobs take; None: as the scenario says.

    Raises:
        ScenarioError: A trace is given to a scenario without fine-tuning jobs.
    """
    content: dict[str, Any] = scenario.model_dump(mode="json")
    if signals:
        stated = content["signals"] or {}
        kept = stated if stated.get("source") == "files" else {key: stated[key] for key in ("months",) if key in stated}
        content["signals"] = {**kept, "source": "files", "paths": [str(path) for path in signals]}
    if jobs is not None:
        if is_dated(jobs) or "origin" in column_names(jobs):
            knowledge = content["jobs"]["knowledge"]
            content["jobs"] = {"source": "table", "path": str(jobs), "knowledge": knowledge}
            if may_record_starts(jobs):
                content["baseline"] = None  # what happened, where the table says so
        elif content["jobs"]["source"] == "fine-tuning":
            content["jobs"]["trace"] = str(jobs)
        else:
            raise ScenarioError(
                f"{jobs} has no column 'origin' or 'submit_time', so it is a trace of gangs and durations; "
                f"scenario {scenario.name!r} "
                "takes none: give a complete job table (docs/data.md)"
            )
    return content
