"""What tasks get for library modules, one file a library or a part of one."""
