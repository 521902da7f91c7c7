"""Late starts that are worth nothing and cost nothing: no quotient of two zeros."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.model.economics import Economics
from reference.cluster_utility import random_environment


@pytest.mark.parametrize("late_usd", [0.0, 0.05])
@pytest.mark.parametrize("revenue", [0.0, 0.1])
def test_jobs_that_earn_and_cost_nothing_are_bounded_without_a_warning(late_usd, revenue):
    env = random_environment(0, count=3, sites=2)
    signals = env.signals
    free = {name: np.zeros_like(value_ZH) for name, value_ZH in signals.value_ZH.items()}
    env = replace(
        env,
        signals=replace(signals, value_ZH=free),
        economics=Economics(revenue_usd_per_gpu_hour=revenue, carbon_usd_per_t=0.0),
        late_until_s=14400.0,
        late_usd_per_gpu_hour=late_usd,
    )
    bound = utility_bound(env, iterations=20, rounds=5)
    assert bound.upper_usd >= bound.lower_usd - 1e-12
    assert (bound.upper_usd > 0) == (revenue > 0)
