"""Every decision, and nothing but decisions: no I/O, no clock, no await. Time is an argument."""
