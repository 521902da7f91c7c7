"""What records say of machine and libraries."""

import platform
from importlib import metadata
from pathlib import Path

import numpy as np

from noonward.ledger import machine as subject
from noonward.ledger.machine import machine, versions


def test_versions_are_those_of_the_libraries_that_compute():
    assert versions()["numpy"] == np.__version__
    assert versions()["highspy"] == metadata.version("highspy")
    assert versions()["python"] == platform.python_version()


def test_the_machine_is_named_by_system_processor_and_blas():
    found = machine()
    assert found["system"].startswith(platform.system())
    assert len(found["blas"]) > 3
    if Path("/proc/cpuinfo").exists() and "model name" in Path("/proc/cpuinfo").read_text():
        assert found["cpu"] in Path("/proc/cpuinfo").read_text()


def test_a_system_without_cpuinfo_gives_the_architecture(monkeypatch):
    monkeypatch.setattr(subject.Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(OSError))
    assert subject._cpu_model() in {platform.processor(), platform.machine()}
