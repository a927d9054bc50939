"""A client for Apache Fluss."""
