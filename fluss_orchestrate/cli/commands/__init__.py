"""The commands of `fluss-orchestrate`, one module per command or group."""
