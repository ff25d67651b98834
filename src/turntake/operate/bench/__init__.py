"""`turntake bench`: how fast, beside two baselines measured in the same run."""
