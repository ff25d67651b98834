"""WhatsApp Cloud API."""
