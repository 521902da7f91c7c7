"""Answers to a grid event: which running jobs give up how much power so that a site stays within its budget."""
