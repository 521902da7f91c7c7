"""Why what is asked of a service is refused, beside what is wrong with the request itself."""

from __future__ import annotations

import msgspec

from noonward.errors import NoonwardError


class NoSuchJobError(NoonwardError):
    """There is no job, or no image, of a number."""


class NotYoursError(NoonwardError):
    """A job or an image is another owner's."""


class TooLateError(NoonwardError):
    """A job has gone too far for what is asked."""


class ClusterAwayError(NoonwardError):
    """A cluster does not answer now."""


class Problem(msgspec.Struct, kw_only=True):
    """Why a request was refused."""

    code: str
    message: str
