"""Trade-offs and sensitivity: policies in environments with another slack or carbon price, or without moves."""
