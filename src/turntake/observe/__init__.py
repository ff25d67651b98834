"""What happens to messages and turns, for whoever watches."""
