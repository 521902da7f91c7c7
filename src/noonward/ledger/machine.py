"""The machine and the libraries that a run was made with: what a reader needs who finds other figures elsewhere."""

from __future__ import annotations

import functools
import platform
from importlib import metadata
from pathlib import Path

import numpy as np

from noonward import __version__


@functools.cache
def versions() -> dict[str, str]:
    """Returns the versions of this package, of Python, and of the libraries that compute."""
    libraries = ("numpy", "numba", "llvmlite", "polars", "highspy")
    return {
        "noonward": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in libraries},
    }


@functools.cache
def machine() -> dict[str, str]:
    """Returns the system, the model of the processor, and the BLAS that numpy was built with."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
    }


def _cpu_model() -> str:
    """Returns the processor's model; where the system does not tell it, the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
