"""Noonward: run AI work where and when power is clean and cheap."""

__version__ = "0.1.0"
