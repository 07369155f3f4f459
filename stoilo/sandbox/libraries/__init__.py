"""What tasks get for modules of described libraries, one file a library or a part of one."""
