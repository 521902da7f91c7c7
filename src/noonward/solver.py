"""The linear solver HiGHS, silent and on one thread."""

from __future__ import annotations

from typing import Any

import highspy


class _Silent(highspy.Highs):
    """HiGHS that is silent from its first call on: from 1.16 on it prints a banner while it is made."""

    def enableCallbacks(self) -> Any:
        """Turns output off before the first call that would print."""
        self.setOptionValue("output_flag", False)
        return super().enableCallbacks()  # type: ignore[no-untyped-call]


def quiet_solver() -> highspy.Highs:
    """Returns a HiGHS instance that prints nothing and runs on one thread, so that runs repeat."""
    solver = _Silent()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver
