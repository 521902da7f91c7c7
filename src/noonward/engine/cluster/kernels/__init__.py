"""Compiled functions on arrays: the engine's state, its physics, its two protocols and their loops."""
