"""Spark: loads and reads beside the plain ways."""
