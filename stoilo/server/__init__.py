"""Gate, log, admission, workunits, validation behind gRPC."""
