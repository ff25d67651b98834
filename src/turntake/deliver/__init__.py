"""D: the turn leaves for the agent, and the answer for the person."""
