"""EAT: the paper's tables and figures beside ours, with controls and bound, at its fifteen arrival rates."""
