"""BOINC's bytes: XML, HTTP, uploads, downloads, programs."""
