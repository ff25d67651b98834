"""Kills, pauses, restarts and cuts off servers under load, then checks the promises. Run it with `make chaos`."""
