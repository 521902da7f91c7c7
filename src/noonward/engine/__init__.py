"""Physics: the cluster engine, and the one loop that asks schedulers and carries out what they answer."""
