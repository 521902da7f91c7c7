"""The partial rule of bid prices: answers by the plan, until an hour turns or the books must reach further."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import typeof, types

from noonward.compiled import kernel
from noonward.decision.cluster.addresses import reader, writer
from noonward.decision.cluster.layout import ANSWER_PARTS, VIEW_PARTS, Part, blank
from noonward.decision.cluster.rule import ANSWERS, VIEW
from noonward.decision.partly_compiled import PARTIAL_RULE
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
_ARRAYS: Final = [typeof(array) for array in blank((*KIND_PARTS, *PRICE_PARTS, *BOOK_PARTS)).values()]
_ASKED: Final = types.Tuple([VIEW, ANSWERS, types.Tuple(_ARRAYS)])
_given: Any = reader(_ASKED, QUESTION_PARTS)
_noted: Any = writer(_ASKED, QUESTION_PARTS)


@kernel(types.int64(_ASKED, types.int64), allocates=False)
def note_planned(asked: Any, address: int) -> int:
    """Writes where view, answers, and the arrays of prices and books lie to a record; see ``writer``."""
    return _noted(asked, address)


@kernel(PARTIAL_RULE, allocates=False)
def by_plan(address: int) -> int:
    """Answers a question by the plan; declines where the plan must be renewed, or books or plans grow, first."""
    view, answers, planned = _given(address)
    (
        kind_X, site_M, kind_S, price_SH, square_SH, mean_SH, capacity_SH, use_SH, paid_SR, energy_SR, option_X,
        booked_ST, plan_J, noted_1,
    ) = planned  # fmt: skip
    kinds = Kinds(kind_X, site_M, kind_S)
    prices = Prices(price_SH, square_SH, mean_SH, capacity_SH, use_SH, paid_SR, energy_SR)
    noted = noted_1[0]
    if int(view.run_1[0].now_s // HOUR_S) != noted.hour or view.job_J.shape[0] > plan_J.shape[0]:
        return 0
    longest_h = answer(view, answers, kinds, prices, option_X, booked_ST, plan_J, noted_1)
    return 1 if longest_h == 0.0 else 0
