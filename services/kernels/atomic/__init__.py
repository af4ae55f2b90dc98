"""Words that threads share."""
