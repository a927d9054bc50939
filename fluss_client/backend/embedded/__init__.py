"""The embedded engine: the whole contract on one SQLite database in one local directory."""
