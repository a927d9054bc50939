"""Sockets: streams of frames, connections, and the metadata of the cluster."""
