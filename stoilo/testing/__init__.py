"""Fakes for tests of programs that use stoilo: real gRPC on loopback, no volunteers."""

from __future__ import annotations

from stoilo.testing.service import FakeTaskService, Outcome, serve_fake

__all__ = ["FakeTaskService", "Outcome", "serve_fake"]
