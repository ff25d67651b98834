"""B: the messages of a conversation wait together until their turn is due."""
