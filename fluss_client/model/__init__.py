"""What a table is: types, schema, paths, offsets. Pure values, no I/O."""
