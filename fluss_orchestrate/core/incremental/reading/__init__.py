"""Reading the rows of a plan."""
