"""Figures for Prometheus, in its text format."""

from __future__ import annotations

from typing import Final

import numpy as np

from noonward.live.controller import Controller

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(controller: Controller) -> str:
    """Returns the service's figures as Prometheus reads them."""
    store, world = controller.store, controller.world
    lines: list[str] = []

    def add(name: str, kind: str, words: str, values: dict[str, float]) -> None:
        lines.extend((f"# HELP noonward_{name} {words}", f"# TYPE noonward_{name} {kind}"))
        lines.extend(f"noonward_{name}{labels} {value:.10g}" for labels, value in values.items())

    counted = store.read(
        "SELECT state, count(*) AS n FROM jobs WHERE state IN ('submitted','transit','waiting','starting','running') "
        "GROUP BY state"
    )
    found = {row["state"]: row["n"] for row in counted}
    states = ("submitted", "transit", "waiting", "starting", "running")
    add("jobs", "gauge", "Jobs that have not ended, by state.", {f'{{state="{s}"}}': found.get(s, 0) for s in states})
    last = store.read("SELECT coalesce(max(id), 0) AS n FROM jobs")[0]["n"]
    add("jobs_submitted_total", "counter", "Jobs submitted.", {"": last})
    decided = store.read("SELECT coalesce(max(id), 0) AS n FROM decisions")[0]["n"]
    add("decisions_total", "counter", "Decisions stored.", {"": decided})
    with controller.lock:
        for field, words in (
            ("free", "GPUs free by the books."),
            ("waiting", "Jobs that wait."),
            ("price", "Price of the hour, USD/MWh."),
            ("carbon", "Carbon intensity of the hour, g/kWh."),
        ):
            values = world.view.site_S[field].tolist()
            labelled = {_site(name): value for name, value in zip(controller.setup.sites, values, strict=True)}
            add(f"site_{field}", "gauge", words, {label: v for label, v in labelled.items() if v == v})
    rows = store.read("SELECT name, reachable, drained, withheld FROM sites ORDER BY name")
    add("site_reachable", "gauge", "1 if the cluster answers.", {_site(row["name"]): row["reachable"] for row in rows})
    add("site_drained", "gauge", "1 if the site is drained.", {_site(row["name"]): row["drained"] for row in rows})
    add("site_withheld_gpus", "gauge", "GPUs not for the service.", {_site(r["name"]): r["withheld"] for r in rows})
    late = 0 if controller.keeper is None else controller.keeper.late_h()
    add("signals_late_hours", "gauge", "Hours of zones that something stands in for.", {"": late})
    beats = {f'{{loop="{name}"}}': float(beat.failures) for name, beat in controller.heartbeats.items()}
    if beats:
        add("loop_failures", "gauge", "Failures in a row of each loop.", beats)
    taken = controller.decision_s[-1000:]
    if taken:
        add(
            "decision_p99_seconds",
            "gauge",
            "99th percentile of the last decisions.",
            {"": float(np.percentile(taken, 99))},
        )
    add("store_commits_total", "counter", "Commits of the store.", {"": store.commits})
    return "\n".join(lines) + "\n"


def _site(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{site="{escaped}"}}'
