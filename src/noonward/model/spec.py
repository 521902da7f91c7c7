"""Base of every part of a scenario file: frozen, unknown keys refused, documented ranges."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SerializerFunctionWrapHandler

from noonward.files import SLUG
from noonward.units import HOUR_S

LARGEST: Final = 1e18
"""Largest number that a scenario may hold, in any unit: products of several such numbers are still finite."""
SMALLEST: Final = 1e-30
"""Smallest number where a value must be above 0."""
MOST: Final = 1_000_000_000
"""Most GPUs or other things that are counted."""
LONGEST_WINDOW_H: Final = 87_600
"""Longest window, h: ten years."""
LARGEST_GANG: Final = 65_536
"""Most GPUs of one job: tables of power and speed have an entry for every gang."""


class Spec(BaseModel):
    """A frozen part of a scenario; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def without_defaults(spec: Spec, write: SerializerFunctionWrapHandler, *names: str) -> dict[str, Any]:
    """Returns a part's content without those of some fields that hold their default, for its serializer.

    So the digests of scenarios that do not state such a field stay what they were before there was one.

    Args:
        spec: The part.
        write: What writes all its fields.
        names: Fields to leave out where they hold their default.
    """
    content: dict[str, Any] = write(spec)
    fields = type(spec).model_fields
    unstated = [name for name in names if getattr(spec, name) == fields[name].get_default(call_default_factory=True)]
    return {name: value for name, value in content.items() if name not in unstated}


def slug(name: str) -> str:
    """Returns a name that can be part of a path.

    Raises:
        ValueError: It holds other characters, or is too long.

    Example:
        >>> slug("../../x")
        Traceback (most recent call last):
        ValueError: a name is 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit
    """
    if not SLUG.fullmatch(name):
        raise ValueError(
            "a name is 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit"
        )
    return name


def _no_truth(value: object) -> object:
    """Refuses true and false where a number is meant: as numbers they would be 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("input should be a number, not true or false")
    return value


_NUMBER: Final = BeforeValidator(_no_truth)
NonNegative = Annotated[float, _NUMBER, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, _NUMBER, Field(gt=0, ge=SMALLEST, le=LARGEST)]
Count = Annotated[int, _NUMBER, Field(ge=1, le=MOST)]
Gang = Annotated[int, _NUMBER, Field(ge=1, le=LARGEST_GANG)]
Hours = Annotated[int, _NUMBER, Field(ge=1, le=LONGEST_WINDOW_H)]
Slot = Annotated[float, _NUMBER, Field(ge=1, le=HOUR_S)]
Sigma = Annotated[float, _NUMBER, Field(ge=0, le=20)]
Slug = Annotated[str, AfterValidator(slug)]
Share = Annotated[float, Field(ge=0, le=1)]
