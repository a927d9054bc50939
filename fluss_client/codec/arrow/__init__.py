"""Arrow record batches as bytes, and Arrow columns between their forms."""
