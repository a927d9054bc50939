"""Fluss from Spark: `format("fluss")`, exactly-once bulk loads, and the spark-submit step."""
