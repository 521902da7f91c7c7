"""The seam: results in order, kept as soon as they are there, whatever ends the rest."""

import pytest

from noonward.errors import ScenarioError
from noonward.runtime.executor import Serial, map_runs
from noonward.runtime.shared import forget, shared
from runtime.specs import Square


def test_results_come_in_the_order_of_the_specs_and_progress_with_each():
    told = []
    assert [square for square, _ in map_runs([Square(3), Square(1), Square(2)], Serial(), told.append)] == [9, 1, 4]
    assert told == ["square of 3", "square of 1", "square of 2"]


class Backwards:
    """An executor that finishes the last first."""

    def each(self, specs):
        yield from reversed([(place, spec.run()) for place, spec in enumerate(specs)])

    def close(self):
        pass


def test_an_executor_may_finish_in_any_order():
    assert [square for square, _ in map_runs([Square(3), Square(1)], Backwards())] == [9, 1]


def test_what_was_done_before_an_error_is_kept(tmp_path):
    specs = [Square(n, tmp_path, first="scenario_error" if n == 2 else "") for n in range(4)]
    with pytest.raises(ScenarioError, match="2 is wrong"):
        map_runs(specs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_what_specs_share_is_made_once_and_dropped_when_they_are_done():
    made = []

    class Sharing(Square):
        def run(self):
            return shared(self.group, lambda: made.append(self.group)), 0

    forget()
    map_runs([Sharing(n) for n in range(4)])
    map_runs([Sharing(0)])
    assert made == [0, 1, 0]
