"""Ten thousand hosts on a virtual clock against the engine's own rules."""
