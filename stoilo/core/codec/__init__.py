"""Values as bytes: the strict, bounded skeleton, its nodes, and JSON for people."""
