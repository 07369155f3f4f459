from stoilo.sandbox.process.blas import mapped_files

MAPS = """\
55d0a0000000-55d0a0002000 r--p 00000000 08:01 1311 /usr/bin/python3.11
7f21c0000000-7f21c0001000 rw-p 00000000 00:00 0
7f21c1000000-7f21c1001000 r-xp 00001000 08:01 1312   /home/a b é/lib/libopenblas.so
7f21c2000000-7f21c2001000 r-xp 00001000 08:01 1313   /tmp/two\\012lines.so
7ffd4b2c0000-7ffd4b2e1000 rw-p 00000000 00:00 0      [stack]
"""


def test_paths_with_spaces_and_newlines_come_out_whole():
    assert mapped_files(MAPS.encode()) == {
        "/usr/bin/python3.11",
        "/home/a b é/lib/libopenblas.so",
        "/tmp/two\nlines.so",
    }


def test_path_of_foreign_bytes_comes_out_as_the_file_system_has_it():
    line = b"7f21c1000000-7f21c1001000 r-xp 0 08:01 1   /tmp/\xff.so\n"
    assert mapped_files(line) == {"/tmp/\udcff.so"}
