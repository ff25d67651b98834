"""A store that many machines share: load, decide by the rules, and write if nobody else wrote meanwhile."""
