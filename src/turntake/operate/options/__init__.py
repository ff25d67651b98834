"""The settings: where they come from and what they mean."""
