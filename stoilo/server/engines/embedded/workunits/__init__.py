"""The life of a workunit: created, handed out, checked, compared, ended, purged."""
