"""The log's writer: what is acknowledged is durable, and what is published never changes."""
