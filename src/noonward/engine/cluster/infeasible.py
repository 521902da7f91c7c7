"""What makes an answer infeasible: the codes by which kernels say so, and the error that a user reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonward.decision.cluster.view import Answers, ClusterView
from noonward.errors import InfeasibleActionError

FAILED_MASK: Final = -1
FAILED_GPUS: Final = -2
FAILED_LEVEL: Final = -3
FAILED_EARLIEST: Final = -4
FAILED_CAP: Final = -10
"""What carrying out an infeasible answer returns; 0 when all went well. Other codes are those of ``kernels.world``."""


def infeasible(
    who: str, where: str, view: ClusterView, answers: Answers, sites: Sequence[str], asker: int, failed: int
) -> InfeasibleActionError:
    """Returns the error that says which answer is infeasible, and what would have been feasible.

    Args:
        who: Who answered.
        where: For whom it did: a site or the dispatcher.
        view: View of the question.
        answers: The answers.
        sites: Names of the sites.
        asker: Position of the asker whose answer is infeasible.
        failed: What is wrong with it, FAILED_...
    """
    record, answer = view.job_J[view.asked_N[asker]], answers.answer_N[asker]
    choice, names = int(answer["choice"]), ("hold", *sites)
    allowed = [name for name, good in zip(names, view.mask_NA[asker].tolist(), strict=True) if good]
    what = {
        FAILED_MASK: f"choice {choice} ({names[choice] if 0 <= choice < len(names) else 'no such site'}); "
        f"feasible now: {', '.join(allowed)}; answer only what view.mask_NA marks",
        FAILED_GPUS: f"a gang of {answer['gpus']} GPUs; allowed: 0 (as many as fit) or {record['gpus_min']} to "
        f"{record['gpus_max']}",
        FAILED_LEVEL: f"clock level {answer['level']}; allowed: -1 (oracle) or a level of the site "
        f"({view.site_S['levels'].tolist()} levels per site)",
        FAILED_EARLIEST: f"an earliest start of {answer['earliest_s'].item()} s, after the job's latest start "
        f"(deadline {record['deadline_s']} s less the return of its result)",
        FAILED_CAP: f"power cap {answer['cap']}; its class has caps 0 (full power) to "
        f"{view.freedom_C['caps'][record['class_']]}, for schedulers with the lever cap, for jobs that start, "
        "are resumed or run and have slack; -1 keeps the cap",
    }[failed]
    return InfeasibleActionError(f"{who} answered for job {record['serial']} at {view.now_s:g} s ({where}): {what}")
