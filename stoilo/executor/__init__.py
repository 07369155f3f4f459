"""The volunteer's side: verifier, runtime, volunteer."""
