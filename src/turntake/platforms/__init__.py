"""The chat platforms: one folder each, with everything that is particular to it."""
