"""Writers: rows are checked, routed, gathered into batches per bucket, and sent in order."""
