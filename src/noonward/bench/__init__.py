"""Benchmarks: how fast the engine, the learners and the planner are, measured here and now."""
