"""A: a request becomes messages, and is answered only once they are stored."""
