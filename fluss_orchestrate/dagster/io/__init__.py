"""The IO manager: frames in and out of Fluss tables."""
