"""From the embedded project to a stock BOINC server."""
