"""The key state of a bucket of a primary-key table, exact at an offset, in bounded memory."""
