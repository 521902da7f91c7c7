"""Bounds that no scheduler passes: utility from above (``cluster_utility``), energy from below (``cluster_energy``)."""
