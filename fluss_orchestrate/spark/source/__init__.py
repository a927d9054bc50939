"""`format("fluss")`: reading and writing tables through Spark's Python data source API."""
