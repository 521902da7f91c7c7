"""The packaged library of GPUs: idle and active power with their sources."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from noonward.errors import ScenarioError, nearest


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU model; the card alone, without host and cooling.

    Attributes:
        name: Name.
        memory_gb: Memory, GB.
        limit_w: The vendor's power limit, W.
        base_mhz: Base clock, MHz, or None where it is not known.
        max_mhz: Highest clock, MHz.
        idle_w: Power while free, W.
        idle_source: Where that is from.
        active_w: Power while a job runs, W.
        active_source: Where that is from.
    """

    name: str
    memory_gb: int
    limit_w: float
    base_mhz: int | None
    max_mhz: int
    idle_w: float
    idle_source: str
    active_w: float
    active_source: str


@cache
def gpu_library() -> Mapping[str, Gpu]:
    """Returns the GPUs by name.

    Example:
        >>> gpu_library()["H100-SXM"].limit_w
        700
    """
    table = json.loads((files("noonward.data") / "tables/gpu_library.json").read_text(encoding="utf-8"))
    return {name: Gpu(name=name, **values) for name, values in table["gpus"].items()}


def find_gpu(name: str) -> Gpu:
    """Returns a GPU by its name; case, blanks and dashes do not count.

    Raises:
        ScenarioError: There is none, or several are meant, as by ``A100``.

    Example:
        >>> find_gpu("a100 80 sxm").name
        'A100-80-SXM'
    """
    wanted = plain_gpu(name)
    found = [gpu for known, gpu in gpu_library().items() if plain_gpu(known) == wanted]
    if found:
        return found[0]
    alike = [known for known in gpu_library() if plain_gpu(known).startswith(wanted)]
    if alike:
        raise ScenarioError(f"GPU {name!r} may be {', '.join(alike)}, whose powers differ; name one of these")
    raise ScenarioError(
        f"GPU {name!r} is not in the library; another one can be written into the scenario file by hand; "
        f"{nearest(name, gpu_library(), list_all=True)}"
    )


def plain_gpu(name: str) -> str:
    """Returns a GPU's name for comparisons: letters and digits alone, in lower case, without a maker."""
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("nvidia").removeprefix("amd").removeprefix("tesla")
