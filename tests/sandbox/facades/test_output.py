def run(language, body):
    lines = "".join(f"    {line}\n" for line in body)
    source = (
        f"import io, sys\nfrom contextlib import redirect_stdout\ndef run(d):\n{lines}"
    )
    return language.call(source)


def test_redirected_output_goes_to_the_target_only(language):
    body = [
        "out = io.StringIO()",
        "with redirect_stdout(out) as same:",
        "    print('in')",
        "    sys.stdout.write('side')",
        "print('after', same is out)",
        "return out.getvalue()",
    ]
    frame, output = run(language, body)
    assert b"in\nside" in frame["value"]
    assert output == "after True\n"


def test_inner_redirection_ends_before_the_outer(language):
    body = [
        "a, b = io.StringIO(), io.StringIO()",
        "with redirect_stdout(a):",
        "    with redirect_stdout(b):",
        "        print('b')",
        "    print('a')",
        "print(a.getvalue() + b.getvalue())",
    ]
    assert run(language, body)[1] == "a\nb\n\n"


def test_error_inside_restores_the_output(language):
    body = [
        "try:",
        "    with redirect_stdout(io.StringIO()):",
        "        1 / 0",
        "except ZeroDivisionError:",
        "    print('seen')",
    ]
    assert run(language, body)[1] == "seen\n"
