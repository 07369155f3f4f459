"""A network in which traffic is played, and the trees that ours is compared with."""
