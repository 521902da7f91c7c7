"""Upper bound on the utility of the cluster settings, with the best schedule known."""
