"""`sqlite:///path`: durable, one machine, no set-up."""
