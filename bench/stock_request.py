"""The text that a stock BOINC client posts to a scheduler.

Elements and their order are those of a 7.20.5 client on Linux; the values are made up.
"""

from __future__ import annotations

__all__ = ["render_stock_request"]

_REQUEST = """<scheduler_request>
    <authenticator>{key}</authenticator>
    <hostid>{host_id}</hostid>
    <rpc_seqno>{seqno}</rpc_seqno>
    <core_client_major_version>7</core_client_major_version>
    <core_client_minor_version>20</core_client_minor_version>
    <core_client_release>5</core_client_release>
    <resource_share_fraction>1.000000</resource_share_fraction>
    <rrs_fraction>1.000000</rrs_fraction>
    <prrs_fraction>1.000000</prrs_fraction>
    <duration_correction_factor>1.000000</duration_correction_factor>
    <allow_multiple_clients>0</allow_multiple_clients>
    <sandbox>0</sandbox>
    <dont_send_work>0</dont_send_work>
    <work_req_seconds>1.000000</work_req_seconds>
    <cpu_req_secs>{wanted:.6f}</cpu_req_secs>
    <cpu_req_instances>{wanted:.6f}</cpu_req_instances>
    <estimated_delay>0.000000</estimated_delay>
    <client_cap_plan_class>1</client_cap_plan_class>
    <platform_name>x86_64-pc-linux-gnu</platform_name>
    <alt_platform>
        <name>i686-pc-linux-gnu</name>
    </alt_platform>
    <code_sign_key>
{code_sign_key}</code_sign_key>
<working_global_preferences>
<global_preferences>
   <mod_time>1700000000.000000</mod_time>
   <max_ncpus_pct>50.000000</max_ncpus_pct>
</global_preferences>
</working_global_preferences>
<global_preferences>
<mod_time>1700000000</mod_time>
<max_ncpus_pct>50</max_ncpus_pct>
</global_preferences>
<cross_project_id>{cpid}</cross_project_id>
<time_stats>
    <on_frac>0.999</on_frac>
    <active_frac>0.999</active_frac>
</time_stats>
<host_info>
    <timezone>0</timezone>
    <domain_name>host</domain_name>
    <host_cpid>{cpid}</host_cpid>
    <p_ncpus>4</p_ncpus>
    <p_vendor>GenuineIntel</p_vendor>
    <p_model>Intel(R) Xeon(R)</p_model>
    <p_features>{features}</p_features>
    <p_fpops>3.5e+09</p_fpops>
    <m_nbytes>16777216000.000000</m_nbytes>
    <d_free>1.000000e+11</d_free>
    <os_name>Linux Debian</os_name>
    <os_version>Debian GNU/Linux 12 (bookworm)</os_version>
</host_info>
<disk_usage><d_boinc_used_total>1</d_boinc_used_total></disk_usage>
<coprocs></coprocs>
{report}<app_versions><app_version><app_name>pure</app_name></app_version></app_versions>
<other_results>{held}</other_results>
<in_progress_results></in_progress_results>
</scheduler_request>
"""
_REPORT = """<result>
    <name>{copy}</name>
    <final_cpu_time>1.500000</final_cpu_time>
    <final_elapsed_time>1.500000</final_elapsed_time>
    <exit_status>0</exit_status>
    <state>5</state>
    <platform>x86_64-pc-linux-gnu</platform>
    <version_num>100</version_num>
<stderr_out>
<core_client_version>7.20.5</core_client_version>
<![CDATA[
]]>
</stderr_out>
</result>
"""
_HELD = "<other_result>\n    <name>{copy}</name>\n</other_result>\n"
_FEATURES = "sse " * 400


def render_stock_request(
    *,
    key: str,
    host_id: int,
    seqno: int,
    cpid: str,
    code_sign_key: str,
    copy: str,
    held: str = "",
) -> bytes:
    """Return one call.

    It reports `copy` unless that is empty, and asks for another; or it names `held` as the
    copy that the host works on, and asks for none.
    """
    return _REQUEST.format(
        key=key,
        host_id=host_id,
        seqno=seqno,
        cpid=cpid,
        code_sign_key=code_sign_key,
        features=_FEATURES,
        wanted=0.0 if held else 1.0,
        held=_HELD.format(copy=held) if held else "",
        report=_REPORT.format(copy=copy) if copy else "",
    ).encode()
