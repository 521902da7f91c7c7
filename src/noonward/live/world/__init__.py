"""The state that decisions are made from: jobs in sight, queues and free GPUs, asked about as in a simulation."""
