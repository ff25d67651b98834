"""The service as HTTP: routes, access, limits, errors and pages."""
