"""The shop that `make demo` and `fluss-orchestrate demo` run. Not an API: do not import it."""
