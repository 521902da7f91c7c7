"""Quality of an image by its inference steps (EAT, Sec. IV; fitted by the authors' public simulator)."""

from __future__ import annotations

import math
from typing import Final, Literal

from noonward.compiled import kernel

QualityLaw = Literal["monotone", "reference"]
"""``monotone``: stays at its value at 30 steps beyond them; ``reference``: falls to 0.27 there, as published."""
LAWS: Final[tuple[QualityLaw, ...]] = ("monotone", "reference")
"""Laws by their number in kernels."""
STEPS_LOW, STEPS_HIGH = 5.0, 30.0
"""Below the first an image is worthless, s < 5; above the second more steps add nothing."""


@kernel(allocates=False)
def quality(steps: float, law: int) -> float:
    """Returns the quality of an image, 0 to 0.284: ``0.16 ln(s) / ln(6) - 0.02`` for 5 to 30 steps.

    Args:
        steps: Inference steps, a real number as in the reference.
        law: Position in ``LAWS``.

    Example:
        >>> round(quality(24.0, 0), 4), quality(4.0, 0), quality(31.0, 1)
        (0.2638, 0.0, 0.27)
    """
    if steps < STEPS_LOW:
        return 0.0
    if steps > STEPS_HIGH:
        if law == 1:
            return 0.27
        steps = STEPS_HIGH
    return 0.16 * math.log(steps) / math.log(6.0) - 0.02


def steps_for(target: float) -> float:
    """Returns the fewest steps that reach a quality of at most that of 30 steps.

    Example:
        >>> round(steps_for(0.26), 2)
        23.0
    """
    return float(max(STEPS_LOW, math.exp((target + 0.02) * math.log(6.0) / 0.16)))


def steps_least(steps_min: float, quality_min: float) -> float:
    """Returns the fewest whole steps that a scenario allows and that reach its least quality.

    Args:
        steps_min: Fewest steps that the scenario allows.
        quality_min: Quality that an image should reach; 0: any.

    Example:
        >>> steps_least(5.0, 0.2), steps_least(5.0, 0.0)
        (12.0, 5.0)
    """
    return max(steps_min, float(math.ceil(steps_for(quality_min) - 1e-9)) if quality_min > 0.0 else 0.0)
