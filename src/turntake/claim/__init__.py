"""C: the turn is due, and exactly one worker takes it."""
