"""How the command line shows answers, rows, progress and errors."""
