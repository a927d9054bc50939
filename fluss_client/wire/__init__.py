"""The Fluss wire protocol without I/O: messages, frames, correlation, authentication."""
