"""How the Iceberg table of a lake is laid out: with system columns, or with user columns only."""
