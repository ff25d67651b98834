"""The HTTP API for those who run it: conversations, turns, dead letters, events."""
