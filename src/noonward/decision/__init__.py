"""What is asked and answered: views, actions, and the scheduler protocol."""
