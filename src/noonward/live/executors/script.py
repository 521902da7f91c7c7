"""The script that Slurm is given for a job: options at its head, variables, and the command, in a container or not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from noonward.live.executors.environment import own_variables
from noonward.live.executors.protocol import Order, RefusedError

_REFUSED: Final = {
    "array": "one job of the service is one job of the cluster; submit a job with 'tasks'",
    "a": "one job of the service is one job of the cluster; submit a job with 'tasks'",
    "wait": "the service does not wait for the end of one job",
    "W": "the service does not wait for the end of one job",
    "test-only": "nothing would be run",
    "clusters": "the service chooses the cluster",
    "M": "the service chooses the cluster",
    "hetjob": "one job of the service is one job of the cluster",
    "packjob": "one job of the service is one job of the cluster",
}
"""Options of sbatch that a script may not state, and why."""
_OPTION: Final = re.compile(r"#SBATCH\s+(?:--?)?([A-Za-z][A-Za-z-]*)")


def batch_script(
    order: Order,
    variables: Mapping[str, str] | None = None,
    container: Sequence[str] = (),
    checkpoint_signal: str | None = None,
) -> str:
    r"""Returns the script that Slurm runs for a job.

    Lines ``#SBATCH`` at the head of a command stay at the head, where sbatch reads them. Variables are exported in the
    script: in the environment of sbatch itself, a PATH or LD_PRELOAD of a job would act on the service's machine.

    Args:
        order: The job.
        variables: Variables that are exported; None: those of ``own_variables``.
        container: Words of the command that runs an image, e.g. ``("apptainer", "exec", "--nv")``; the image and a
            shell follow.
        checkpoint_signal: Signal that the script outlives, so that its command can write a checkpoint upon it.

    Raises:
        RefusedError: Its head has an option of sbatch that the service cannot follow.

    Example:
        >>> one = Order(token="t", job=7, name="a", command="#SBATCH --mem=8G\ntrue", gpus=2, run_s=1.0, start_s=0.0)
        >>> print(batch_script(one), end="")
        #!/bin/sh
        #SBATCH --mem=8G
        export NOONWARD_JOB=7
        export NOONWARD_GPUS=2
        true
    """
    lines = (order.command or ":").split("\n")
    head = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    for line in lines[:head]:
        found = _OPTION.match(line)
        name = None if found is None else found[1]
        if name is not None and name in _REFUSED:
            raise RefusedError(f"the option {line.strip()!r} of its command is not possible here: {_REFUSED[name]}")
    given = own_variables(order) if variables is None else variables
    exports = [f"export {name}={shlex.quote(value)}" for name, value in given.items()]
    command = "\n".join(lines[head:]) or ":"
    if order.terms.image is not None:
        command = shlex.join(["exec", *container, order.terms.image, "/bin/sh", "-c", command])
    outlives = [] if checkpoint_signal is None else [f"trap : {checkpoint_signal}"]
    return "\n".join(["#!/bin/sh", *lines[:head], *exports, *outlives, command]) + "\n"
