"""Record batches: the units that requests and log segments carry."""
