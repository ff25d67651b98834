"""For those who run it: settings, command line, service, logs."""
