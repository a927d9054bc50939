"""How planning, committing and waiting grow: with positions, partitions and sensors."""
