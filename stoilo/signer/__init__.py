"""Keys, the development root and the signer process."""
