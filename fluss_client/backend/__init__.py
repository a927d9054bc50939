"""Where tables live: the contract, and one package per backend."""
