"""The solver says nothing: what a command prints may be read by a program."""

import subprocess
import sys

from noonward.solver import quiet_solver


def test_a_solver_prints_nothing_and_leaves_the_output_as_it_was():
    code = "from noonward.solver import quiet_solver; s = quiet_solver(); s.addVar(0, 1); s.run(); print('after')"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout == "after\n"


def test_a_solver_runs_on_one_thread():
    assert quiet_solver().getOptionValue("threads")[1] == 1


def test_a_process_without_standard_output_gets_a_solver():
    code = "import os; os.close(1); from noonward.solver import quiet_solver; quiet_solver().addVar(0, 1)"
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.PIPE)
