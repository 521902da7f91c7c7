"""Day-ahead plans with probabilistic guarantees (Hall et al.)."""
