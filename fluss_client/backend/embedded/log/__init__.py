"""The log of a bucket: stored batches, appends, reads and retention."""
