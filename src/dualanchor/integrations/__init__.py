"""Where other libraries meet this one: each integration is imported by its own name."""
