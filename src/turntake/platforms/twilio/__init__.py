"""Twilio, for SMS and WhatsApp."""
