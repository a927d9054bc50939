"""`python -m fluss_orchestrate.demo`."""

from fluss_orchestrate.demo.main import main

main()
