"""The trusted base: all that a volunteer's frozen verifier takes from `executor`."""
