"""The cluster engine: one run, many runs side by side, and the kernels of both."""
