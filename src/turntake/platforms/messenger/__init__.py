"""Messenger."""
