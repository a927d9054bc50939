"""The console: pages about a cluster, its tables, checkpoints, lakes and loads.

It stands between the core and the shells: it imports the core only, and Airflow, Dagster and the
command line may import it. Without its extra `console`, `links` still works.
"""
