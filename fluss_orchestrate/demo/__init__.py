"""The main job in one command, on a laptop: `make demo`."""
