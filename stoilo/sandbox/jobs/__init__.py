"""What a jailed child can be asked to do."""
