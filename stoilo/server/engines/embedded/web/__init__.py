"""BOINC over HTTP: requests, replies, uploads, downloads, pages, and their bounds."""
