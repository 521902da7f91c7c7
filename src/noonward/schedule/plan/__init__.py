"""Day-ahead plans with probabilistic guarantees (Hall, Micheli, Belgioioso, Radovanovic, Doerfler), and their use."""

from noonward.schedule.plan.problem import LoadClass, PlanProblem, mixed_cost
from noonward.schedule.plan.result import Certificate, Fractions, Plan, Prices, tail_mean
from noonward.schedule.plan.solve import Planner, make_plan

__all__ = [
    "Certificate",
    "Fractions",
    "LoadClass",
    "Plan",
    "PlanProblem",
    "Planner",
    "Prices",
    "make_plan",
    "mixed_cost",
    "tail_mean",
]
