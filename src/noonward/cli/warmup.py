"""``noonward warmup``: compiles everything once, so that later commands compile nothing."""

from __future__ import annotations


def warmup() -> None:
    """Compile all kernels and rules into the cache (about half a minute, once per version)."""
    import time

    began = time.perf_counter()
    from noonward.compiled import cache_base, prune_cache
    from noonward.data.environments import build_environment
    from noonward.data.scenario_file import load_scenario
    from noonward.engine.run import run
    from noonward.evaluate.compare import compute_bound
    from noonward.ledger.ledger import settle
    from noonward.ledger.record import hour_table
    from noonward.schedule.registry import make_scheduler

    for name, settings in (("fine-tuning", ["window_h=6", "jobs.count=40"]), ("dvfs-training", ["window_h=1"])):
        scenario = load_scenario(name, settings)
        environment = build_environment(scenario)
        for policy in scenario.policies:
            outcome = run(environment, make_scheduler(policy))
            settle(outcome)
            hour_table(outcome)
        compute_bound(environment)
    prune_cache()
    print(f"compiled functions are in {cache_base()} ({time.perf_counter() - began:.0f} s)")
