"""How the Iceberg table of a lake is laid out: schema, partitions, system columns or none."""
