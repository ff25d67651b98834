"""What WhatsApp, Messenger and Instagram have in common."""
