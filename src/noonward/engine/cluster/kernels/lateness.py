"""Lateness: the price of starts after arrival + slack, where jobs may be late and a price is stated."""

from __future__ import annotations

from noonward.compiled import kernel
from noonward.engine.cluster.kernels.physics import credit
from noonward.engine.cluster.kernels.world import AT_START, OWN, World
from noonward.units import HOUR_S


@kernel(inline=True, allocates=False)
def pay_lateness(w: World, job: int, s: int) -> None:
    """Books the price of a late start, if the job that starts or is resumed at a site now is late."""
    run = w.shown.run_1[0]
    if run.late_usd_per_gpu_hour > 0.0 and run.now_s > w.shown.job_J[job].deadline_s:
        late_s = run.now_s - w.shown.job_J[job].deadline_s
        hours, gpus = late_s / HOUR_S, w.shown.job_J[job].gpus_min
        if w.engine_1[0].bends:  # what a job has paid before counts when it is resumed
            hours, gpus = (late_s - w.bent_J[job].late_s) / HOUR_S, w.submitted_R[w.track_J[job].row].gpus_min
            w.bent_J[job].late_s = late_s
        usd = run.late_usd_per_gpu_hour * gpus * hours
        w.engine_1[0].late_usd += usd
        if w.engine_1[0].rewards >= AT_START:
            w.engine_1[0].started_usd -= usd
            if w.engine_1[0].rewards == OWN:
                credit(w, job, s, -usd)
