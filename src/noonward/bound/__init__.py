"""Bounds that no scheduler passes: utility from above (``lagrangian``), energy from below (``fluid``)."""
