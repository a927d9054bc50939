"""The `fluss-orchestrate` command."""
