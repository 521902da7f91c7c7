"""The service's pages: HTML made on the server, kept up to date in place, loaded from no other host."""
