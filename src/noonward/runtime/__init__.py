"""Running many: specs of single runs, and executors that carry them out here, in processes or on Ray."""
