"""The API of the seed guides: the async core on the process's I/O thread."""
