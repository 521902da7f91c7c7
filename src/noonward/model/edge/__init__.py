"""Frozen nouns of the edge settings: gang times, quality, image tasks, scenario, environment."""
