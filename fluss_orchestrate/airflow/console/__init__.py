"""The console in Airflow's API server, behind Airflow's own login and rights."""
