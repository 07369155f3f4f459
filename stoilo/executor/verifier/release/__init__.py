"""What a project released: targets under TUF metadata, read and verified up to one root."""
