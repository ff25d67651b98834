"""The generic webhook, for every platform without a folder of its own."""
