"""The volunteer's side: launcher, verifier, slots, our own BOINC-compatible volunteer."""
