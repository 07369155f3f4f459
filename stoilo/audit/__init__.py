"""The append-only log: formats, sequencer, publisher, readers."""
