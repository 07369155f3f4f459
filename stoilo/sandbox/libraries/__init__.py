"""What tasks get for described libraries, one file a library or a part of one."""
