"""What the edge settings ask and answer: view, gangs of servers, rules."""
