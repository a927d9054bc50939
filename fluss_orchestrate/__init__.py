"""Run Apache Fluss from Airflow, Dagster and Spark."""
