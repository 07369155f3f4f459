"""What a log is made of: keys, notes, checkpoints, trees, tiles, leaves, proofs. Pure."""
