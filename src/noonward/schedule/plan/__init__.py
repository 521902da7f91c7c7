"""Day-ahead plans with probabilistic guarantees (Hall, Micheli, Belgioioso, Radovanovic, Doerfler), and their use."""

from noonward.schedule.plan.classes import LoadClass, Queued
from noonward.schedule.plan.horizon import load_of_starts, remaining
from noonward.schedule.plan.one_day import OneDayPlanner
from noonward.schedule.plan.problem import PlanProblem
from noonward.schedule.plan.promise import PromisePlanner
from noonward.schedule.plan.result import Certificate, Fractions, Plan, Prices, tail_mean
from noonward.schedule.plan.robustness import Robustness, Trial, choose_robustness
from noonward.schedule.plan.solve import Planner, make_plan

__all__ = [
    "Certificate",
    "Fractions",
    "LoadClass",
    "OneDayPlanner",
    "Plan",
    "PlanProblem",
    "Planner",
    "Prices",
    "PromisePlanner",
    "Queued",
    "Robustness",
    "Trial",
    "choose_robustness",
    "load_of_starts",
    "make_plan",
    "remaining",
    "tail_mean",
]
