"""The linear solver prints nothing: what commands print as JSON stays JSON."""

import numpy as np

from noonward.bound.highs import minimise
from noonward.solver import quiet_solver


def test_nothing_is_printed(capfd):
    quiet_solver().run()
    found = minimise(np.ones(2), np.ones((1, 2)), np.ones(1), np.full(1, np.inf), "a small program")
    assert found.value == 1.0
    assert capfd.readouterr() == ("", "")
