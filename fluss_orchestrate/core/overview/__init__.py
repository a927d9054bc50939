"""An overview of a cluster: tables, checkpoints and lakes at one moment, for people who look."""
