"""What all learners share: nets, masking, replay, rollouts, checkpoints."""
