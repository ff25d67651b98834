"""Conversations on Redis or Valkey: one server, Sentinel or Cluster."""
