"""Field tests of data centers that follow a grid event: their power held against our physics, their plans to ours."""
