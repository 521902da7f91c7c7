"""What the cluster settings ask and answer: view, values, gangs, observations."""
