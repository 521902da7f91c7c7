"""Small random planning problems."""

import numpy as np

from noonward.schedule.plan import LoadClass, PlanProblem, Queued


def random_problem(seed, **changes):
    """Two to three hours, two classes, two clusters, with ranges, flexibilities, costs and loads drawn at random."""
    rng = np.random.default_rng(seed)
    hours, samples = int(rng.integers(2, 4)), int(rng.integers(2, 6))
    classes = (
        LoadClass(name="bound", clusters=(int(rng.integers(2)),), flexibility_h=int(rng.integers(3))),
        LoadClass(name="free", clusters=(0, 1), flexibility_h=int(rng.integers(3))),
    )
    span = hours + max(one.flexibility_h for one in classes)
    load_NKC = rng.uniform(0.2, 1.0, (samples, hours, 2))
    values = {
        "classes": classes,
        "load_NKC": load_NKC,
        "capacity_TD": rng.uniform(2.5, 4.0, (span, 2)),
        "cost_TD": rng.uniform(0.5, 2.0, (span, 2)),
        "peak_cost_D": rng.uniform(0.0, 1.0, 2),
        "beta": float(rng.uniform(0.15, 0.9)),
        "eps": float(rng.choice([0.0, 0.01, 0.05, 0.2])),
        "load_max_KC": load_NKC.max(axis=0) * rng.uniform(1.0, 1.6),
        "support": bool(rng.integers(4)),
    }
    return PlanProblem(**(values | changes))


def general_problem(seed, **changes):
    """As ``random_problem`` with runs of 1 to 3 h, a queue, placed load and an earlier peak."""
    rng = np.random.default_rng(seed)
    hours, samples = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    classes = tuple(
        LoadClass(
            name=name,
            clusters=clusters,
            flexibility_h=int(rng.integers(3)),
            run_hours=int(rng.integers(1, 4)),
        )
        for name, clusters in (("bound", (int(rng.integers(2)),)), ("free", (0, 1)))
    )
    span = hours + max(one.reach_h for one in classes)
    load_NKC = rng.uniform(0.2, 1.0, (samples, hours, 2))
    values = {
        "classes": classes,
        "load_NKC": load_NKC,
        "capacity_TD": rng.uniform(8.0, 12.0, (span, 2)),
        "cost_TD": rng.uniform(0.5, 2.0, (span, 2)),
        "peak_cost_D": rng.uniform(0.0, 1.0, 2),
        "beta": float(rng.uniform(0.15, 0.9)),
        "eps": float(rng.choice([0.0, 0.01, 0.05, 0.2])),
        "load_max_KC": load_NKC.max(axis=0) * rng.uniform(1.0, 1.6),
        "support": bool(rng.integers(2)),
        "placed_TD": rng.uniform(0.0, 0.5, (span, 2)),
        "queued": (Queued(load_class=1, load=float(rng.uniform(0.1, 0.8)), flexibility_h=int(rng.integers(2))),),
        "peak_before_D": rng.uniform(0.0, 3.0, 2),
    }
    return PlanProblem(**(values | changes))


def paper_like(samples=60, clusters=4, seed=0, hours=12, delay_h=4, **changes):
    """A problem of the paper's form, smaller: cluster-bound, data-center-bound and global classes."""
    rng = np.random.default_rng(seed)
    ranges = [(d,) for d in range(clusters)] + [(d, d + 1) for d in range(0, clusters, 2)] + [tuple(range(clusters))]
    hour_K, hour_T = np.arange(hours), np.arange(hours + delay_h)
    shape_KC = 0.32 * (1 + 0.2 * np.cos(2 * np.pi * (hour_K[:, None] - 8) / 12)) * np.ones(len(ranges))
    load_NKC = shape_KC * (1 + 0.1 * rng.normal(size=(samples, hours, len(ranges))).clip(-3, 3))
    phase_D = 5.4 * (np.arange(clusters) // 2) + 0.9 * (np.arange(clusters) % 2)
    values = {
        "classes": tuple(LoadClass(name=f"c{i}", clusters=r, flexibility_h=delay_h) for i, r in enumerate(ranges)),
        "load_NKC": load_NKC,
        "capacity_TD": np.ones((hours + delay_h, clusters)),
        "cost_TD": 1 + 0.215 * np.cos(2 * np.pi * (hour_T[:, None] - phase_D) / 12),
        "peak_cost_D": np.full(clusters, 0.18),
    }
    return PlanProblem(**(values | changes))
