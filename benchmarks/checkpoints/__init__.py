"""What a run of an incremental scan costs beside the reading."""
