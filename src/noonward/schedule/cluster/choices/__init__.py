"""Policies that score the choices of a question one by one: any number of sites, learned prices, plans of all jobs."""
