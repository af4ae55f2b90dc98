"""vLLM's own engine behind the same public service, as a second engine."""
