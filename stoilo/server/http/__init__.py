"""What the server's own web server shows: the log's files, the release's files."""
