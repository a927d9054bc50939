"""The client on your own event loop."""
