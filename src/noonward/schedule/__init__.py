"""Schedulers: rules of both protocols, the bandit, bid prices, the day-ahead planner and the registry."""
