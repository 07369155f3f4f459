"""The gRPC interface for researchers and reviewers: who calls, how much, how often."""
