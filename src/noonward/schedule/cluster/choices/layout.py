"""Where the numbers, tables and nets of a choice-scoring policy lie in a rule's memory."""

from __future__ import annotations

from typing import Final

ENTRY_S: Final = 300.0
"""Length of an entry of the books, s."""
ENTRIES: Final = 12
"""Entries of the books in an hour."""

(
    HOUR,  # hour whose prices the tables hold
    FREED,  # entry up to which the books have been cleared
    LAST_START_S,  # latest start of any job, s
    WINDOW_S,  # end of the window in which free GPUs are charged, s
    START_H,  # hour of day of second 0, UTC
    ASK_S,  # a hold stands until the next multiple of this, s
    TEMPERATURE,  # of the draw; 0: the best choice
    PRICE_SCALE,  # factor on the learned prices; 0: none
    NOTED,  # questions that were answered by the net
    ROOM,  # rows for notes
    HIDDEN_1,  # units of the scoring net's layers
    HIDDEN_2,
    PRICE_HIDDEN,  # units of the price net's layer
    PRICE_AT,  # where the price net's weights begin
    RESIDUAL,  # 1: the net's output is added to the planned value
    STATE_ONLY,  # 1: the net is shown only what the paper's state holds
    DEVIATE,  # share of questions whose choice is drawn; the others take the best
    NUMBERS,
) = range(18)
"""Positions in ``memory.number_P``."""

PAID, ENERGY, COST, PRICE = range(4)
"""Blocks of S rows of ``memory.table_XY``: running integrals of prices, USD per GPU, and of the cost of energy, USD per
W; cost of energy and price by hour, shares of the revenue. One more row holds the fleet's mean cost."""

HELD_UNTIL_S, PLAN_START_S = range(2)
"""Positions in ``memory.job_number_JP``: until when a hold stands; the planned start."""
PLAN_SITE, PLAN_FIRST, PLAN_LENGTH, PLAN_GPUS = range(4)
"""Positions in ``memory.job_index_JP``: the planned site, or -1; first entry, entrys and GPUs of the planned run."""

INPUTS: Final = 42
"""Inputs of the scoring net."""
PRICE_INPUTS: Final = 12
"""Inputs of the price net."""
NOTE: Final = INPUTS + 2
"""Length of a note: the inputs of the choice taken, the serial of the job, and the hour."""
