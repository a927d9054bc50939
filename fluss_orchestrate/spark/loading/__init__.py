"""The bulk load: input cut into units, units pinned, sent by tasks, counted into a receipt."""
