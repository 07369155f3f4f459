"""Generated gRPC bindings of proto/stoilo/v1; regenerate with `make proto`."""
