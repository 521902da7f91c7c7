"""``noonward warmup``: compiles everything once, so that later commands compile nothing."""

from __future__ import annotations


def warmup() -> None:
    """Compile all kernels and rules into the cache (about half a minute, once per version)."""
    import time

    from noonward.compiled import cache_folder
    from noonward.data.environments import build_environment
    from noonward.data.scenario_file import load_scenario
    from noonward.engine.run import run
    from noonward.evaluate.compare import compute_bound
    from noonward.ledger.ledger import settle
    from noonward.ledger.record import hour_table
    from noonward.schedule.registry import make_scheduler

    began = time.perf_counter()
    for name in ("fine-tuning", "dvfs-training"):
        scenario = load_scenario(name, ["window_h=1"] if name == "dvfs-training" else [])
        environment = build_environment(scenario)
        outcome = run(environment, make_scheduler(scenario.policies[0]))
        settle(outcome)
        hour_table(outcome)
        compute_bound(environment)
    print(f"compiled functions are in {cache_folder()} ({time.perf_counter() - began:.0f} s)")
