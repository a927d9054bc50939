"""What Airflow, Dagster, Spark and the command line share. No orchestrator is imported here."""
