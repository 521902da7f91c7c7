"""Headers that pages carry."""

from __future__ import annotations

from typing import Final

COMMON: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Nothing is kept, guessed at or framed, and no other site learns an address."""
