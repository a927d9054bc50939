"""The embedded engine beside DuckDB and SQLite, on the same work with equal durability."""
