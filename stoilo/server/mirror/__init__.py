"""The other side of a mirror: a folder of the project's shared files, kept up to date."""
