"""Schedulers of the edge settings: rules, lookahead, metaheuristics."""
