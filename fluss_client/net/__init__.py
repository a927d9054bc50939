"""Sockets: streams of frames, connections, which server has what."""
