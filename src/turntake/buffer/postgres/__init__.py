"""`postgresql://host/database`: durable, many machines, the server a team already has."""
