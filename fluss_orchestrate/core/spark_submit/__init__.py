"""Launching Spark jobs by spark-submit.

Nothing here imports pyspark, so that every shell can use it.
"""
