"""Making a plan from a checkpoint and the table as it is."""
