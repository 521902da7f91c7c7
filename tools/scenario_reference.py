"""Writes docs/scenario*.md, the reference of scenario files, from the models that check them.

python tools/scenario_reference.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noonward.model.kinds import find_kind
from noonward.model.spec import MOST, SMALLEST

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Scenario file

A scenario is one YAML file: fleet, signals, jobs, prices and policies. `noonward init` writes one for your fleet,
`noonward scenario show tiny` prints a packaged one, `noonward scenario check FILE` checks yours, and
`noonward scenario schema` prints a JSON schema for editors. An unknown key is an error.

These pages list every key; `python tools/scenario_reference.py` writes them from the models that check the files. More:
[sites and hardware](scenario-fleet.md), [meters](scenario-meter.md),
[signals and jobs](scenario-jobs.md), [image generation](scenario-edge.md).
"""
EVENTS = ("StatedEvent", "EventFile", "DrawnEvents", "TargetContract")
PAGES = {
    "scenario.md": (
        "cluster",
        HEAD,
        ("Scenario", "Economics", "Lateness", "Network", "Constraints", "Tenants", *EVENTS),
    ),
    "scenario-fleet.md": (
        "cluster",
        "# Scenario file: sites and hardware\n\nThe key `fleet` of a [scenario file](scenario.md), and its parts.\n",
        ("Fleet", "Site", "GpuType", "ClassProfile", "Freedom", "Ingress"),
    ),
    "scenario-meter.md": (
        "cluster",
        "# Scenario file: meters, tariffs and devices\n\nThe keys `meter` and `behind_meter` of a site, and `tariffs` "
        "of the [fleet](scenario-fleet.md), in a [scenario file](scenario.md). What they mean: [meters](meter.md).\n",
        ("Meter", "BehindMeter", "Tariff"),
    ),
    "scenario-jobs.md": (
        "cluster",
        "# Scenario file: signals and jobs\n\nThe keys `signals` and `jobs` of a [scenario file](scenario.md). The key "
        "`source` says which of the parts below is meant.\n",
        (
            *("GeneratedSignals", "SignalFiles", "SinusoidalSignals"),
            *("JobTable", "FineTuningJobs", "PoissonJobs", "MixedJobs", "ShapedJobs", "PaperStreamJobs"),
        ),
    ),
    "scenario-edge.md": (
        "edge",
        "# Scenario file: image generation\n\nScenarios of `kind: edge`, for image generation on edge servers "
        "([EAT](edge-inference.md)).\n",
        (),
    ),
}
"""Pages: kind of scenarios, how the page begins, and the models that stand on it first; parts follow their whole."""


def refs(schema: Any) -> list[str]:
    """Returns the names of the models that a part of a schema refers to, in order."""
    if isinstance(schema, dict):
        own = [schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else []
        return own + [name for value in schema.values() for name in refs(value)]
    return [name for value in schema for name in refs(value)] if isinstance(schema, list) else []


def values(schema: dict[str, Any], defs: dict[str, Any]) -> str:
    """Returns what a key may hold, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        if "enum" in defs[name]:
            return values(defs[name], defs)
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            said = [values(each, defs) for each in schema[key]]
            return " or ".join(dict.fromkeys(each for each in said if each != "null")) + (
                ", or null" if "null" in said else ""
            )
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        fixed = schema.get("prefixItems")
        inner = ", ".join(values(each, defs) for each in fixed) if fixed else values(schema.get("items", {}), defs)
        return f"list of {inner}" if not fixed else f"[{inner}]"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"mapping of names to {values(inner, defs)}" if isinstance(inner, dict) else "mapping"
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}
    if kind == "string" and schema.get("format") in ("date", "date-time", "path"):
        return {"date": "date", "date-time": "time", "path": "file"}[schema["format"]]
    return words.get(kind or "", "any value") + limits(schema)


def limits(schema: dict[str, Any]) -> str:
    """Returns the range of a number, in words; nothing where it is only kept finite."""
    least = schema.get("minimum", schema.get("ge"))
    above = schema.get("exclusiveMinimum", schema.get("gt"))
    most, below = schema.get("maximum", schema.get("le")), schema.get("exclusiveMaximum", schema.get("lt"))
    said = []
    if above is not None or least == SMALLEST:
        said.append(f"above {above or 0:g}")
    elif least is not None:
        said.append(f"from {least:g}")
    if below is not None:
        said.append(f"below {below:g}")
    elif most is not None and most < MOST:
        said.append(f"to {most:g}")
    return " " + " ".join(said) if said else ""


def default(name: str, schema: dict[str, Any], required: list[str]) -> str:
    """Returns the default of a key."""
    if name in required:
        return "required"
    if "default" not in schema:
        return "empty"
    given = schema["default"]
    if given is None or given in ("", [], {}):
        return "none" if given is None else "empty"
    return "see there" if isinstance(given, dict) else f"`{json.dumps(given, ensure_ascii=False)}`"


def cell(text: str) -> str:
    """Returns a text as a cell of a table."""
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def section(name: str, schema: dict[str, Any], defs: dict[str, Any]) -> str:
    """Returns the section of a model: what it is, and a table of its keys."""
    said = cell(schema.get("description", "").split("\n\n")[0])
    lines = [f"## {name}", "", said, "", "| key | value | default | meaning |", "|---|---|---|---|"]
    for key, each in schema.get("properties", {}).items():
        row = (
            f"`{key}`",
            values(each, defs),
            default(key, each, schema.get("required", [])),
            each.get("description", ""),
        )
        lines.append(f"| {' | '.join(map(cell, row))} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Returns the pages by name."""
    out, schemas = {}, {}
    for kind in ("cluster", "edge"):
        schema = find_kind(kind).part("scenario").model_json_schema(by_alias=True)
        schemas[kind] = (schema.get("title", "Scenario"), {**schema.get("$defs", {}), schema["title"]: schema})
    placed: dict[str, str] = {}
    for page, (kind, _, first) in PAGES.items():
        title, defs = schemas[kind]
        for name in first or (title,):
            placed.setdefault(f"{kind}:{name}", page)
    for page, (kind, head, first) in PAGES.items():
        title, defs = schemas[kind]
        order, queue = [], list(first or (title,))
        while queue:
            name = queue.pop(0)
            if name in order or placed.setdefault(f"{kind}:{name}", page) != page or "properties" not in defs[name]:
                continue
            order.append(name)
            content = {key: value for key, value in defs[name].items() if key != "$defs"}
            if not (page == "scenario.md" and name == title):
                queue = [*queue, *refs(content)]
        out[page] = (head, kind, order)
    text = {}
    for page, (head, kind, order) in out.items():
        defs = schemas[kind][1]
        body = "\n".join([head, *(section(name, defs[name], defs) for name in order)])
        for name in defs:
            home = placed.get(f"{kind}:{name}")
            if home is not None and home != page:
                body = body.replace(f"](#{name.lower()})", f"]({home}#{name.lower()})")
        text[page] = body
    return text


def main() -> None:
    """Writes the pages."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
