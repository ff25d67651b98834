"""Kills the server at random moments under load, then checks the promises. Run it with `make chaos`."""
