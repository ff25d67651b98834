"""Local HTTP servers that stand in for the platforms' own APIs."""
