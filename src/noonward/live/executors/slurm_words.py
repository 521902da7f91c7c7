"""What Slurm's words say when it fails: that it is away, or that it refuses what it was asked."""

from __future__ import annotations

import re
from typing import Final

from noonward.live.executors.protocol import ClusterError

_AWAY: Final = re.compile(
    "contact slurm controller|timed out|Connection|ommunicat|Zero Bytes|standby|temporarily|munge|uthentication|"
    "Transport endpoint|I/O error|Unable to resolve|Incompatible versions|not available .inactive or drain|"
    "error while loading|Resource temporarily|Protocol|slurm.conf"
)
"""Words about the cluster; whatever else it says is about the job."""


class AnsweredError(ClusterError):
    """Slurm answered that it refuses what it was asked about a job.

    Args:
        message: What was asked of it, and its words.
        words: Its words alone.
    """

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message)
        self.words = words


def failure(message: str, words: str) -> ClusterError:
    """Returns the error for what Slurm said: an ``AnsweredError``, or another ClusterError if it is away for now.

    Args:
        message: What was asked of it, and its words.
        words: Its words alone.

    Example:
        >>> type(failure("sbatch failed: Invalid qos", "Invalid qos")).__name__
        'AnsweredError'
        >>> type(failure("sbatch failed: Socket timed out", "Socket timed out")).__name__
        'ClusterError'
    """
    return ClusterError(message) if _AWAY.search(words) else AnsweredError(message, words)
