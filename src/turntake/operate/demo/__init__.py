"""`turntake demo`."""
