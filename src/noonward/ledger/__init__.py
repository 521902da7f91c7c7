"""The ledger: what happened, and what it used, earned, cost and emitted. The one place for money and carbon."""
