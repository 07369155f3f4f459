"""Scheduler requests as real clients send them, and as nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.boinc.messages import ClientVersion, HostInfo
from stoilo.core.errors import TrustError
from stoilo.server.engines.embedded.web.requests import parse_request

# The fields and their order are those of a 7.20.5 client; the values are made up.
REAL = """<scheduler_request>
    <authenticator>0123456789abcdef0123456789abcdef</authenticator>
    <hostid>17</hostid>
    <rpc_seqno>42</rpc_seqno>
    <core_client_major_version>7</core_client_major_version>
    <core_client_minor_version>20</core_client_minor_version>
    <core_client_release>5</core_client_release>
    <resource_share_fraction>1.000000</resource_share_fraction>
    <rrs_fraction>1.000000</rrs_fraction>
    <prrs_fraction>-nan</prrs_fraction>
    <duration_correction_factor>1.000000</duration_correction_factor>
    <allow_multiple_clients>1</allow_multiple_clients>
    <sandbox>0</sandbox>
    <dont_send_work>0</dont_send_work>
    <work_req_seconds>1.000000</work_req_seconds>
    <cpu_req_secs>1.728000e+05</cpu_req_secs>
    <cpu_req_instances>2.000000</cpu_req_instances>
    <estimated_delay>0.000000</estimated_delay>
    <client_cap_plan_class>1</client_cap_plan_class>
    <platform_name>x86_64-pc-linux-gnu</platform_name>
    <alt_platform>
        <name>i686-pc-linux-gnu</name>
    </alt_platform>
    <code_sign_key>
1024
abcdef
.
    </code_sign_key>
<working_global_preferences>
<global_preferences>
   <mod_time>1.000000</mod_time>
   <max_ncpus_pct>50.000000</max_ncpus_pct>
</global_preferences>
</working_global_preferences>
<global_preferences>
<mod_time>1700000000</mod_time>
<venue name="home">
<run_on_batteries>1</run_on_batteries>
</venue>
</global_preferences>
<cross_project_id>00000000000000000000000000000000</cross_project_id>
<time_stats>
    <on_frac>0.999</on_frac>
</time_stats>
<host_info>
    <timezone>0</timezone>
    <domain_name>b\u00fcro</domain_name>
    <host_cpid>00112233445566778899aabbccddeeff</host_cpid>
    <p_ncpus>8</p_ncpus>
    <p_vendor>GenuineIntel</p_vendor>
    <p_model>Intel(R) Xeon(R) &amp; Co</p_model>
    <p_features>FEATURES</p_features>
    <p_fpops>3.5e+09</p_fpops>
    <m_nbytes>16777216000.000000</m_nbytes>
    <d_free>1.000000e+11</d_free>
    <os_name>Linux Debian</os_name>
    <os_version>Debian GNU/Linux 12 (bookworm)</os_version>
</host_info>
<disk_usage><d_boinc_used_total>1</d_boinc_used_total></disk_usage>
<coprocs></coprocs>
<result>
    <name>w_1_0</name>
    <final_cpu_time>1.500000</final_cpu_time>
    <final_elapsed_time>-nan</final_elapsed_time>
    <exit_status>0</exit_status>
    <state>5</state>
    <platform>x86_64-pc-linux-gnu</platform>
    <version_num>100</version_num>
<stderr_out>
<core_client_version>7.20.5</core_client_version>
<![CDATA[
STDERR
]]>
</stderr_out>
    <file_info>
        <name>w_1_0_r1_0</name>
        <nbytes>164.000000</nbytes>
        <max_nbytes>1000.000000</max_nbytes>
    </file_info>
</result>
<file_info>
    <name>aaaa</name>
    <nbytes>9.000000</nbytes>
    <status>1</status>
</file_info>
<file_info>
    <name>../../etc/passwd</name>
</file_info>
<app_versions><app_version><app_name>pure</app_name></app_version></app_versions>
<other_results>
    <other_result>
        <name>w_2_0</name>
        <app_version>0</app_version>
    </other_result>
</other_results>
<in_progress_results></in_progress_results>
<client_opaque><![CDATA[<x>]]></client_opaque>
</scheduler_request>
""".replace("FEATURES", "sse " * 400)


def real(old="", new=""):
    return REAL.replace(old, new, 1).encode()


def test_every_field_of_a_real_request_is_read():
    request = parse_request(real())
    assert (request.host_id, request.rpc_seqno) == (17, 42)
    assert request.client == ClientVersion(7, 20, 5)
    assert request.platforms == ("x86_64-pc-linux-gnu", "i686-pc-linux-gnu")
    assert request.code_sign_key == "1024\nabcdef\n."
    assert (request.cpu_req_secs, request.cpu_req_instances) == (172800.0, 2.0)
    assert not request.own_program
    assert [other.name for other in request.other_results] == ["w_2_0"]
    assert request.sticky_files == ("aaaa",)


def test_host_is_what_it_says_of_itself():
    request = parse_request(real())
    assert request.ncpus == 8
    assert request.host == HostInfo(
        domain_name="b\u00fcro",
        vendor="GenuineIntel",
        model="Intel(R) Xeon(R) & Co",
        fpops=3.5e9,
        memory_bytes=16_777_216_000.0,
        disk_free_bytes=1e11,
        os_name="Linux Debian",
        os_version="Debian GNU/Linux 12 (bookworm)",
    )


def test_preferences_are_the_users_own_and_not_those_in_use():
    text = parse_request(real()).global_preferences
    assert text.startswith("<mod_time>1700000000</mod_time>")
    assert '<venue name="home">' in text


def test_measured_numbers_that_are_none_count_as_nothing():
    (report,) = parse_request(real()).results
    assert (report.cpu_s, report.elapsed_s) == (1.5, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "caf\u00e9 \u2603",
        "]]>",
        "]]> <b> & </result>",
        "<stderr_txt>\nTraceback <module>\n</stderr_txt>",
        "\x1b[31mred\x1b[0m",
        "<![CDATA[ inside",
        "&#233; &bogus;",
        "x" * 300_000,
    ],
)
def test_copy_is_reported_whatever_its_program_has_written(text):
    (report,) = parse_request(real("STDERR", text)).results
    assert report.name == "w_1_0"
    assert report.stderr.replace("?", "")[-3:] in text.replace("\x1b", "")
    assert len(report.stderr) <= 64 * 1024


def test_stderr_in_latin1_is_no_reason_to_refuse():
    data = real("STDERR", "\u00e9").decode().encode("latin-1")
    assert parse_request(data).results


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200))
def test_any_output_of_a_program_leaves_the_request_readable(text):
    request = parse_request(real("STDERR", text.replace("</stderr_out>", "")))
    assert [report.name for report in request.results] == ["w_1_0"]


def test_unterminated_output_is_refused():
    with pytest.raises(TrustError, match="STO-X030"):
        parse_request(real("</stderr_out>", ""))


@pytest.mark.parametrize(
    "new",
    [
        "<global_preferences><a></global_preferences>",
        "<global_preferences>" + "<a/>" * 2000 + "</global_preferences>",
        "<global_preferences>" + " " * 20_000 + "</global_preferences>",
    ],
)
def test_unusable_preferences_never_reach_other_hosts(new):
    head, _, rest = REAL.partition("</working_global_preferences>")
    begin, end = rest.index("<global_pref"), rest.index("<cross_project")
    data = head + "</working_global_preferences>" + rest[:begin] + new + rest[end:]
    try:
        assert parse_request(data.encode()).global_preferences == ""
    except TrustError as error:
        assert error.code == "STO-X030"


@pytest.mark.parametrize("size", ["1e999", "-5", "nan", "x", "1" * 500, ""])
def test_absurd_sizes_of_a_host_are_nothing(size):
    request = parse_request(real("16777216000.000000", size))
    assert request.host.memory_bytes == 0.0


def test_number_of_processors_is_bounded():
    assert parse_request(real("<p_ncpus>8<", "<p_ncpus>1e9<")).ncpus == 4096
    assert parse_request(real("<p_ncpus>8<", "<p_ncpus>-1<")).ncpus == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<hostid>17<", "<hostid>-1<"),
        ("<name>w_1_0<", "<name>../x<"),
        ("<name>w_2_0<", "<name>a/b<"),
        ("00112233445566778899aabbccddeeff", "'; drop"),
        ("<state>5<", "<state>five<"),
        ("<cpu_req_secs>1.728000e+05<", "<cpu_req_secs>nan<"),
        ("abcdef", "a" * 5000),
        ("</scheduler_request>", ""),
    ],
)
def test_what_the_project_acts_on_is_refused_when_it_makes_no_sense(old, new):
    with pytest.raises(TrustError, match="STO-X030"):
        parse_request(real(old, new))


def test_too_many_results_are_refused():
    result = "<result><name>a_0</name><state>5</state></result>"
    with pytest.raises(TrustError, match="STO-X030"):
        parse_request(real("<coprocs></coprocs>", result * 1001))


@given(st.binary(max_size=300), st.integers(0, len(REAL)))
def test_any_bytes_end_in_a_request_or_our_error(junk, place):
    data = REAL.encode()
    try:
        parse_request(data[:place] + junk + data[place:])
    except TrustError as error:
        assert error.code == "STO-X030"


def test_copy_that_is_named_twice_is_reported_once():
    data = real().decode()
    begin = data.index("<result>")
    end = data.index("</result>") + len("</result>")
    twice = data[:end] + data[begin:end] + data[end:]
    assert parse_request(twice.encode()) == parse_request(data.encode())


def test_output_that_grows_when_it_is_escaped_is_no_reason_to_refuse():
    data = real("STDERR", "<" * 60_000).decode()
    begin = data.index("<result>")
    end = data.index("</result>") + len("</result>")
    copies = [data[begin:end].replace("w_1_0", f"w_{n}_0") for n in range(20)]
    whole = data[:begin] + "".join(copies) + data[end:]
    assert len(parse_request(whole.encode()).results) == 20


@pytest.mark.parametrize(
    ("said", "found"),
    [("0.25", 0.25), ("7", 1.0), ("-1", 0.0), ("nan", 0.0), ("1e999", 0.0), ("x", 0.0)],
)
def test_progress_of_an_unfinished_result_is_within_bounds(said, found):
    text = (
        "<scheduler_request><host_info><host_cpid>abc</host_cpid></host_info>"
        f"<other_results><other_result><name>r_1</name><fraction_done>{said}"
        f"</fraction_done><current_cpu_time>{said}</current_cpu_time></other_result>"
        "</other_results></scheduler_request>"
    )
    (other,) = parse_request(text.encode()).other_results
    assert other.fraction_done == found
    assert other.cpu_s == (7.0 if said == "7" else found)
