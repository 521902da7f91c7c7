"""The store: jobs, events, hand-overs, signals and decisions in one SQLite file, with one writer."""
