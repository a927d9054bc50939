"""The key state of primary-key tables: upserts, merge engines and look-ups."""
