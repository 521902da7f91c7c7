"""The service's HTTP interface: jobs, sites, decisions, events, figures; loopback unless there are tokens."""
