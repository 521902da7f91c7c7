"""What is trained in: scenarios, their draws, and the rows that run them."""
