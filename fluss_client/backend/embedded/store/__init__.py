"""The SQLite database of a directory, and the catalog of tables and partitions in it."""
