"""`turntake doctor`: looks over settings, store, agent and channels, and says what to do."""
