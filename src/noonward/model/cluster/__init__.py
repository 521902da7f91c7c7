"""Frozen nouns of the cluster settings: fleet, power, jobs, scenario, environment."""
