"""The same seed gives the same records on every CPU: SIMD kernels of numpy, BLAS, libm and the compiler are swapped.

Each setting is a child process, since libraries choose their kernels when they are loaded. Switches of different
libraries are set in one child: a difference of any of them is seen.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core import _multiarray_umath as numpy_core

from same_on_every_machine import digest

ROOT = Path(__file__).parents[1]
CHILD = Path(__file__).with_name("same_on_every_machine.py")
RUNS = (
    *(f"fine-tuning/{name}" for name in ("local-backfill", "random", "cheapest-feasible")),
    *(f"fine-tuning/{name}" for name in ("booked-persistence", "booked-noisy", "bid-price-regression")),
    *(f"fine-tuning/{name}" for name in ("masac", "bid-price-neural")),
    *(f"dvfs-training/{name}" for name in ("dp", "greedy-energy(gpus=2)", "chsac-af")),
    *(f"dvfs-mixed/{name}" for name in ("sla-energy", "greedy-mixed")),
    *(f"load-shaping/{name}" for name in ("at-once", "plan-hard")),
)
FEW_KERNELS = ("fine-tuning/booked-regression", "fine-tuning/masac")
"""Runs for a setting in which every kernel is compiled again: one of the two loops, for that takes a minute."""


def simd_of_numpy():
    """SIMD features that numpy has found and can do without, in this version's names."""
    found = numpy_core.__cpu_features__
    return " ".join(name for name in numpy_core.__cpu_dispatch__ if found.get(name, True))


def runs_here(*names):
    """Whether this CPU has the instructions of a kernel, by any of numpy's names for them."""
    return any(numpy_core.__cpu_features__.get(name, False) for name in names)


KERNELS = {
    "Haswell": runs_here("AVX2", "X86_V3"),
    "SkylakeX": runs_here("AVX512_SKX", "X86_V4"),
}
"""Kernels of OpenBLAS, and whether this CPU can run them: others end the process by an illegal instruction."""
OLD = {
    "NPY_DISABLE_CPU_FEATURES": simd_of_numpy(),
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4",
    **({"OPENBLAS_CORETYPE": "Prescott"} if runs_here("SSE3", "X86_V2") else {}),
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2"),
}
MACHINES = {
    **{f"BLAS for {name}": {"OPENBLAS_CORETYPE": name} for name, runs in KERNELS.items() if runs},
    "numpy and C library without SIMD, BLAS for Prescott": OLD,
}
PRODUCT = "import numpy as np; x = np.random.default_rng(0).random((300, 300)); print((x @ x).data.hex())"


def product(**environment):
    """Bits of a product of matrices in a process of its own."""
    child = [sys.executable, "-c", PRODUCT]
    return subprocess.run(child, env=os.environ | environment, check=True, capture_output=True, text=True).stdout


def digests(tmp_path, runs, **environment):
    """Digests of the records of some runs in a process of its own."""
    out = tmp_path / "digests.json"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run(
        [sys.executable, str(CHILD), str(out), *runs], env=os.environ | {"PYTHONPATH": path} | environment, check=True
    )
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def here():
    return {run: digest(*run.split("/")) for run in (*RUNS, *FEW_KERNELS)}


x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names kernels of x86 CPUs")


@x86
@pytest.mark.parametrize("machine", MACHINES)
def test_records_do_not_depend_on_the_libraries_kernels(machine, here, tmp_path):
    if MACHINES[machine] is not OLD and product(**MACHINES[machine]) == product():
        pytest.skip("these are this CPU's own kernels")
    found = digests(tmp_path, RUNS, **MACHINES[machine])
    assert found == {run: here[run] for run in RUNS}


def test_records_do_not_depend_on_the_cpu_that_is_compiled_for(here, tmp_path):
    found = digests(tmp_path, FEW_KERNELS, NUMBA_CPU_NAME="generic")
    assert found == {run: here[run] for run in FEW_KERNELS}


def test_no_compiled_function_may_reorder_or_fuse_operations():
    """What the other loop rests on, too: without numba's ``fastmath`` every CPU computes what is written."""
    said = [path.name for path in (ROOT / "src").rglob("*.py") if "fastmath" in path.read_text(encoding="utf-8")]
    assert said == []


@x86
def test_a_setting_does_change_last_bits_of_unrounded_numbers():
    """So that the tests above could fail: a product of matrices differs between two BLAS kernels."""
    assert len({product(**change) for change in ({}, *MACHINES.values())}) > 1
