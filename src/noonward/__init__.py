"""Noonward: run AI work where and when power is clean and cheap.

Public names for writing, running and comparing schedulers; each loads when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

__version__: Final = "0.1.0"

_HOMES: Final = {
    "ASK_RUNNING": "noonward.decision.cluster.view",
    "CARBON": "noonward.decision.cluster.view",
    "PRICE": "noonward.decision.cluster.view",
    "Answers": "noonward.decision.cluster.view",
    "BatchEngine": "noonward.engine.cluster.batch",
    "Brief": "noonward.decision.brief",
    "Checkpoint": "noonward.engine.checkpoint",
    "ClusterEngine": "noonward.engine.cluster.engine",
    "ClusterView": "noonward.decision.cluster.view",
    "CompiledScheduler": "noonward.decision.scheduler",
    "Environment": "noonward.model.cluster.environment",
    "Forecast": "noonward.forecasts.forecast",
    "GpuCaps": "noonward.model.cluster.environment",
    "Jobs": "noonward.model.cluster.jobs",
    "Ledger": "noonward.ledger.ledger",
    "Needs": "noonward.decision.brief",
    "NoonwardError": "noonward.errors",
    "Observation": "noonward.decision.cluster.observation",
    "Outcome": "noonward.ledger.segments",
    "RuleMemory": "noonward.decision.cluster.view",
    "Scenario": "noonward.model.cluster.scenario",
    "Scheduler": "noonward.decision.scheduler",
    "Signals": "noonward.model.signals",
    "TrainedPolicy": "noonward.schedule.cluster.trained_policy",
    "build_environment": "noonward.runtime.by_kind",
    "build_environments": "noonward.runtime.by_kind",
    "check_scheduler": "noonward.evaluate.conformance",
    "compare": "noonward.evaluate.compare",
    "import_files": "noonward.data.import_files",
    "init_fleet": "noonward.evaluate.init_fleet",
    "last_start_s": "noonward.decision.cluster.view",
    "latest_start_s": "noonward.decision.cluster.view",
    "lead_integral": "noonward.decision.cluster.view",
    "load_scenario": "noonward.data.scenarios.load",
    "make_scheduler": "noonward.schedule.policies",
    "read_record": "noonward.runtime.by_kind",
    "register": "noonward.schedule.policies",
    "rule": "noonward.decision.cluster.rule",
    "run": "noonward.runtime.by_kind",
    "sensitivity": "noonward.evaluate.what_if.run",
    "settle": "noonward.runtime.by_kind",
    "trade_off": "noonward.evaluate.what_if.run",
    "when": "noonward.evaluate.when",
    "write_record": "noonward.ledger.record",
}

__all__ = [
    "ASK_RUNNING",
    "CARBON",
    "PRICE",
    "Answers",
    "BatchEngine",
    "Brief",
    "Checkpoint",
    "ClusterEngine",
    "ClusterView",
    "CompiledScheduler",
    "Environment",
    "Forecast",
    "GpuCaps",
    "Jobs",
    "Ledger",
    "Needs",
    "NoonwardError",
    "Observation",
    "Outcome",
    "RuleMemory",
    "Scenario",
    "Scheduler",
    "Signals",
    "TrainedPolicy",
    "__version__",
    "build_environment",
    "build_environments",
    "check_scheduler",
    "compare",
    "import_files",
    "init_fleet",
    "last_start_s",
    "latest_start_s",
    "lead_integral",
    "load_scenario",
    "make_scheduler",
    "read_record",
    "register",
    "rule",
    "run",
    "sensitivity",
    "settle",
    "trade_off",
    "when",
    "write_record",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'noonward' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from noonward.data.import_files import import_files
    from noonward.data.scenarios.load import load_scenario
    from noonward.decision.brief import Brief, Needs
    from noonward.decision.cluster.observation import Observation
    from noonward.decision.cluster.rule import rule
    from noonward.decision.cluster.view import (
        ASK_RUNNING,
        CARBON,
        PRICE,
        Answers,
        ClusterView,
        RuleMemory,
        last_start_s,
        latest_start_s,
        lead_integral,
    )
    from noonward.decision.scheduler import CompiledScheduler, Scheduler
    from noonward.engine.checkpoint import Checkpoint
    from noonward.engine.cluster.batch import BatchEngine
    from noonward.engine.cluster.engine import ClusterEngine
    from noonward.errors import NoonwardError
    from noonward.evaluate.compare import compare
    from noonward.evaluate.conformance import check_scheduler
    from noonward.evaluate.init_fleet import init_fleet
    from noonward.evaluate.what_if.run import sensitivity, trade_off
    from noonward.evaluate.when import when
    from noonward.forecasts.forecast import Forecast
    from noonward.ledger.ledger import Ledger
    from noonward.ledger.record import write_record
    from noonward.ledger.segments import Outcome
    from noonward.model.cluster.environment import Environment, GpuCaps
    from noonward.model.cluster.jobs import Jobs
    from noonward.model.cluster.scenario import Scenario
    from noonward.model.signals import Signals
    from noonward.runtime.by_kind import build_environment, build_environments, read_record, run, settle
    from noonward.schedule.cluster.trained_policy import TrainedPolicy
    from noonward.schedule.policies import make_scheduler, register
