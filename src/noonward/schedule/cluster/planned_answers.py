"""The partial rule of bid prices: answers by the plan, until an hour turns or the books must reach further."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import typeof, types

from noonward.compiled import kernel
from noonward.decision.cluster.addresses import reader, writer
from noonward.decision.cluster.layout import ANSWER_PARTS, VIEW_PARTS, Part, blank
from noonward.decision.cluster.rule import ANSWERS, RULE, VIEW
from noonward.schedule.cluster.bookings import NOTED, PLAN, answer
from noonward.schedule.cluster.capacity_prices import OPTION, Prices
from noonward.schedule.cluster.kinds import KIND, Kinds
from noonward.units import HOUR_S

PRICE_PARTS: Final = (
    *(Part(name, np.float64, ("sites", "priced")) for name in Prices._fields[:5]),
    *(Part(name, np.float64, ("sites", "turns")) for name in Prices._fields[5:]),
)
"""The arrays of ``Prices``, in its order."""
KIND_PARTS: Final = (
    Part("kind_X", KIND, ("kinds",)),
    Part("site_M", np.int64, ("sites",)),
    Part("kind_S", np.int64, ("sites",)),
)
"""The arrays of ``Kinds``, in its order."""
BOOK_PARTS: Final = (
    Part("option_X", OPTION, ("options",)),
    Part("booked_ST", np.int64, ("sites", "booked")),
    Part("plan_J", PLAN, ("planned",)),
    Part("noted_1", NOTED, ("one",)),
)
"""Room for the options of a job, the books, the plans, and what is noted beside them."""
QUESTION_PARTS: Final = (*VIEW_PARTS, *ANSWER_PARTS, *KIND_PARTS, *PRICE_PARTS, *BOOK_PARTS)
"""All arrays that ``by_plan`` is given."""
_ASKED: Final = types.Tuple(
    [
        VIEW,
        ANSWERS,
        typeof(Kinds(*blank(KIND_PARTS).values())),
        typeof(Prices(*blank(PRICE_PARTS).values())),
        *(typeof(array) for array in blank(BOOK_PARTS).values()),
    ]
)
_given: Any = reader(_ASKED, QUESTION_PARTS)
_noted: Any = writer(_ASKED, QUESTION_PARTS)


@kernel(types.int64(_ASKED, types.int64), allocates=False)
def note_planned(asked: Any, address: int) -> int:
    """Writes where view, answers, and the arrays of prices and books lie to a record; see ``writer``."""
    return _noted(asked, address)


@kernel(types.float64(types.int64), allocates=False)
def answer_planned(address: int) -> float:
    """Answers a question by the plan, or returns how long a run the books must reach for first, h."""
    view, answers, kinds, prices, option_X, booked_ST, plan_J, noted_1 = _given(address)
    return answer(view, answers, kinds, prices, option_X, booked_ST, plan_J, noted_1)


@kernel(RULE, allocates=False)
def by_plan(address: int) -> int:
    """Answers a question by the plan; declines where the plan must be renewed, or books or plans grow, first."""
    view, _, _, _, _, _, plan_J, noted_1 = _given(address)
    if int(view.run_1[0].now_s // HOUR_S) != noted_1[0].hour or view.job_J.shape[0] > plan_J.shape[0]:
        return 0
    return 1 if answer_planned(address) == 0.0 else 0
