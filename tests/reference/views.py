"""Hand-made views for tests of single rules."""

import numpy as np

from noonward.decision.cluster.layout import VIEW_PARTS, blank
from noonward.decision.cluster.view import ANSWER, ORACLE, Answers, ClusterView


def make_view(sites, *, asked=(0,), jobs=({},), mask=None, power_w=((100.0,),), seconds=((1.0,),), leads=1, **run):
    """A view of some sites.

    Args:
        sites: A dict of SITE fields per site; `free` is `gpus` unless given, PUE 1, one level, an ingress point.
        asked: Job per asker.
        jobs: A dict of JOB fields per job; gangs of 1, one unit of work and no deadline unless given.
        mask: mask[asker][choice]; all 1 unless given.
        power_w: power_w[gang - 1][level], alike at all sites.
        seconds: seconds[gang - 1][level] a unit.
        leads: Hours ahead of the forecasts.
        run: RUN fields.
    """
    levels, count = len(power_w[0]), len(sites)
    sizes = {"sites": count, "ingress": count, "choices": 1 + count, "askers": len(asked), "slots": len(jobs)}
    parts = blank(VIEW_PARTS, **sizes, leads=leads + 1, gangs=len(power_w) + 1, levels=levels)
    fill(parts["run_1"], [{"slot_s": 60.0, "site": -1, "late_until_s": -np.inf} | run])
    default = {"gpus": 1, "pue": 1.0, "levels": levels, "price": np.nan, "carbon": np.nan}
    fill(
        parts["site_S"], [default | {"ingress": s, "free": site.get("gpus", 1)} | site for s, site in enumerate(sites)]
    )
    default = {"work": 1.0, "deadline_s": np.inf, "gpus_min": 1, "gpus_max": 1, "preset_site": -1}
    fill(parts["job_J"], [default | job for job in jobs])
    parts["asked_N"][:] = asked
    parts["mask_NA"][:] = 1 if mask is None else mask
    parts["home_I"][:] = range(len(sites))
    speed = parts["speed_KSCGF"]
    speed[0, :, 0, 1:], speed[1, :, 0, 1:] = np.array(power_w), np.array(seconds)
    energy = np.nan_to_num(speed[0] * speed[1], nan=np.inf)
    parts["oracle_SCG"][:] = energy.argmin(-1)
    parts["clock_SF"][:] = np.linspace(1 / levels, 1.0, levels)
    return ClusterView(**parts)


def fill(records, rows):
    for record, row in zip(records, rows, strict=True):
        for name, value in row.items():
            record[name] = value


def ask(scheduler, view):
    """Asks a scheduler: its answers as tuples (choice, gpus, level, earliest_s), from "hold, largest gang, oracle"."""
    answers = Answers(np.zeros(len(view.asked_N), ANSWER), np.zeros((len(view.site_S), 0)))
    answers.answer_N["level"] = ORACLE
    scheduler.decide(view, answers)
    return answers.answer_N.tolist()


def choices(scheduler, view):
    """Choices alone."""
    return [answer[0] for answer in ask(scheduler, view)]
