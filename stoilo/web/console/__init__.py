"""The console: pages for people whom the server knows, researchers and operators."""
