"""Advice on a waiting queue: where and when each job would run under a policy, without a service and without rights."""
