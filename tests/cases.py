"""Inputs and peers that an earlier version handled wrongly, each with the tests that detect the fault.

`python -m tests.cases` prints all cases. With case numbers as arguments, it prints the commands that run the tests of
these cases.
"""

from __future__ import annotations

import sys

from tests.conformance import ROOT, names

_PAGE = "test_har_cases.test_a_recording_becomes_a_page_with_its_requests"
_LOADED = "test_har_cases.test_pages_load_as_recorded"
_HINTS = "test_har_cases.test_hints_that_are_missing_change_nothing"
_WEIGHT = "test_har_cases.test_bodies_have_the_recorded_weight"
_REPORTED = "test_har_cases.test_what_differs_is_reported"
_SEVERAL_PAGES = "test_har_cases.test_one_page_of_several_is_chosen_and_the_others_are_reported"
_REFUSED = "test_har_cases.test_no_recording_of_a_page_is_refused_with_the_reason"
_UNEVEN = "test_cluster_uneven.test_what_waits_for_a_worker_that_is_left_out_goes_to_the_others"
_DOOR = "test_cli.test_what_means_nothing_or_would_be_passed_over_is_refused_at_the_door"
_BAD_CALL = "test_cli.test_a_bad_call_is_one_line_that_says_what_to_do"

CASES: dict[int, tuple[str, list[str]]] = {
    1: ("initiator that is empty or a URL: init_string", [_PAGE, _HINTS]),
    2: ("hints that are null or missing: time_null pages_null headers_null mime_null no_pagetimings", [_PAGE, _HINTS]),
    3: (
        "escapes in paths: pct_one pct_slash path_space_quote",
        [_PAGE, _LOADED, "test_har_cases.test_paths_have_one_form", "coalesce.TestPathsWithEscapes"],
    ),
    4: (
        "URLs of other hosts: css_other_host css_other_host_nobody frame_other_host frame_other_host_nobody",
        [_PAGE, _LOADED],
    ),
    5: ("empty bodies: empty_js empty_css204 empty_doc_body", [_PAGE, _LOADED, _WEIGHT]),
    6: ("image that is larger with compression than without: gz_tiny", [_WEIGHT, _LOADED]),
    7: ("body truncated by the recorder: truncated_text", [_WEIGHT, _REPORTED, _LOADED]),
    8: (
        "compressed body without a Content-Encoding header",
        ["test_har_cases.test_an_unlabelled_compressed_text_is_compressed_to_its_weight"],
    ),
    9: ("recording with a warm cache: bodysize_on_cached memory_cache", [_WEIGHT, _REPORTED, _LOADED]),
    10: ("several ports or schemes of one host: ports scheme", [_PAGE, _REPORTED, _LOADED]),
    11: (
        "several pages in one recording: two_pages pages_swapped placeholder placeholder_onload two_docs_login",
        [_PAGE, _SEVERAL_PAGES],
    ),
    12: ("unusual host names, addresses: localhost ipv4 ipv6 idn_unicode trailing_dot", [_PAGE, _REPORTED, _LOADED]),
    13: ("media types of documents: mime_upper xhtml", [_PAGE, _LOADED]),
    14: ("charsets: latin1 sjis_b64", [_PAGE, "test_har_cases.test_other_charsets_keep_their_bytes", _LOADED]),
    15: ("integrity attributes of rewritten scripts: sri_rewritten", [_REPORTED, _LOADED]),
    16: ("times with and without a time zone: naive_mixed naive_pages", [_PAGE]),
    17: ("recording with 304 host names", ["test_har_cases.test_a_load_of_too_many_hosts_is_refused"]),
    18: ("encodings of the recording: utf16 gz.har.gz bom", [_PAGE]),
    19: (
        "file names in folders of saved pages",
        ["test_kept_pages.test_files_of_a_saved_page_are_located_whatever_their_names"],
    ),
    20: (
        "file instead of a folder, ARC file, archive in one gzip member, truncated archive",
        [
            "test_kept_pages.test_what_is_no_folder_is_refused_with_the_reason",
            "test_kept_pages.test_an_arc_is_called_one",
            "test_kept_pages.test_an_archive_in_one_gzip_member_is_the_same",
            "test_kept_pages.test_an_archive_that_was_cut_is_truncated",
        ],
    ),
    21: (
        "pages of several hosts: chain_hosts",
        [
            "test_har_cases.test_the_studies_that_cannot_use_a_page_of_several_hosts_are_named",
            "test_har_cases.test_a_page_of_three_hosts_is_measured_in_both_browsers",
        ],
    ),
    22: ("recording with only a POST request: post_only", [_REFUSED]),
    23: (
        "resource that fails or is missing",
        [
            "test_har_cases.test_a_load_with_a_missing_resource_is_a_failed_row",
            "test_conditions.test_a_load_in_which_a_resource_fails_is_an_error_with_the_reason",
            "test_conditions.test_a_load_that_lacks_a_resource_is_an_error_with_the_reason",
        ],
    ),
    24: ("wrong types in JSON files, reported in terms of JSON", ["test_decode.test_json_is_refused_in_terms_of_json"]),
    25: (
        "line of 21 digits in a Mahimahi trace",
        ["test_traces.test_a_file_that_is_not_mahimahis_is_refused_with_its_line"],
    ),
    26: ("RTT and rate that tc refuses", ["test_links.test_what_tc_cannot_take_is_refused_by_its_key"]),
    27: (
        "capture without packet directions",
        [
            "test_packets.test_a_capture_without_directions_has_the_client_that_begins",
            "test_packets.test_a_capture_without_directions_and_beginnings_is_refused",
        ],
    ),
    28: ("UPDATE and STATUS over DoQ", ["early.TestOtherOpcodesAreNotImplemented"]),
    29: (
        "NOTIFY on every listener",
        ["coalesce.TestOtherOpcodesAreNotImplemented", "early.TestOtherOpcodesAreNotImplemented"],
    ),
    30: ("upstream that resets a stream", ["stub.TestStreamThatIsResetIsAskedOnceMore"]),
    31: (
        "answers that a client cancels",
        [
            "early.TestStoppedStreamsEnd",
            "coalesce.TestStoppedStreamsOfHTTP3End",
            "coalesce.TestCancelledRequestsEnd",
            "stub.TestRequestsThatBrowsersCancelEnd",
        ],
    ),
    32: ("overflow of an HTTP/2 flow-control window", ["stub.TestHTTPClientThatLocksItself"]),
    33: (
        "protocol errors in early data, connections above the limit",
        [
            "early.TestProtocolErrorsOfEarlyData",
            "early.TestOtherOpcodesAsEarlyData",
            "early.TestTooManyConnectionsGetAReason",
        ],
    ),
    34: ("queries with a TSIG signature over UDP, TCP and TLS", ["coalesce.TestAnswersAreSigned"]),
    35: ("invalid ECH key or configuration", ["coalesce.TestEncryptedHellosAreOpened"]),
    36: (
        "server certificate with RSA 1024, server certificate of a CA",
        ["test_dns_policy.test_one_policy_for_certificates", "stub.TestOnePolicyForCertificates"],
    ),
    37: (
        "answers about another name, CNAME loops",
        [
            "test_dns_policy.test_answers_are_about_the_question",
            "test_dns_message.test_the_answer_section_is_about_the_question",
        ],
    ),
    38: (
        "gzip over DoH, many header fields, reserved EDNS flags, long control lines, messages printed by libraries",
        [
            "test_dns_policy.test_a_response_with_a_content_encoding_is_named",
            "test_dns_policy.test_header_fields_over_doh3_are_bounded",
            "coalesce.TestReservedFlagsAreCleared",
            "control.TestLongLines",
            "test_dns_policy.test_libraries_print_nothing",
            "stub.TestLibrariesPrintNothing",
        ],
    ),
    39: ("thousands of queries in flight", ["stub.TestMemoryOfQueriesInFlight"]),
    40: ("QUIC upstream that acknowledges packets but does not answer", ["stub.TestWedgedConnectionOfQUIC"]),
    41: (
        "server killed before the first round",
        ["test_first_round.test_a_server_that_is_killed_before_the_first_round"],
    ),
    42: (
        "killed processes of a cluster, cluster with one testbed left",
        [
            "test_cluster_dies.test_whatever_is_killed_every_round_is_there_once",
            "test_cluster_uneven.test_a_worker_that_is_frozen_before_the_start_is_left_behind",
        ],
    ),
    43: (
        "dataset without its store, or with more data than its store",
        [
            "test_store.test_a_dataset_without_its_store_is_not_overwritten",
            "test_store.test_a_dataset_with_more_than_its_store_is_not_overwritten",
            "test_store.test_a_folder_of_something_else_is_not_overwritten",
        ],
    ),
    44: ("worker of another commit or browser, without a guest kernel, or with failing rounds", [_UNEVEN]),
    45: ("frozen worker", ["test_cluster_uneven.test_a_worker_that_is_frozen_before_the_start_is_left_behind"]),
    46: (
        "PATH without system folders",
        [
            "test_resources.test_programs_of_the_system_folders_are_located_without_the_path",
            "test_resources.test_no_other_part_of_the_library_searches_or_expects_programs_on_the_path",
        ],
    ),
    47: (
        "worker of another commit, allowed by the plan",
        ["test_cluster_uneven.test_a_worker_of_another_commit_is_taken_where_the_plan_says_so_and_recorded"],
    ),
    48: (
        "missing sbatch, invalid scheduler file, file instead of a folder and vice versa, full output device",
        [
            "test_cluster_ssh.test_slurm_without_its_command_is_one_sentence",
            "test_cluster_ssh.test_a_scheduler_file_that_is_none_is_one_sentence",
            "test_report.test_a_folder_that_is_a_file_or_a_dataset_is_refused_before_anything_is_drawn",
            "test_cli.test_a_folder_is_no_file_for_the_metrics",
            "test_cli.test_an_output_that_takes_nothing_is_one_line",
        ],
    ),
    49: (
        "table that is missing but counted in campaign.json",
        ["test_dataset.test_a_table_that_is_counted_and_not_there_is_named"],
    ),
    50: (
        "campaign folder removed, store damaged",
        [
            "test_store.test_a_folder_that_is_removed_meanwhile_has_its_rounds_again",
            "test_store.test_a_file_that_is_cut_off_meanwhile_is_reported",
            "test_store.test_a_damaged_store_is_not_called_safe",
        ],
    ),
    51: ("options without effect, invalid arguments", [_DOOR, _BAD_CALL]),
    52: (
        "low limit of open files, full disk, missing file of links",
        [
            "test_cli.test_a_limit_of_open_files_is_named_and_not_taken_for_namespaces",
            "test_store.test_a_disk_that_is_still_full_is_named_again",
            _BAD_CALL,
        ],
    ),
    53: (
        "SSH cluster on a loopback address",
        [
            "test_cluster_ssh.test_a_cluster_on_the_loopback_listens_nowhere_else",
            "test_cluster_ssh.test_the_address_that_is_named_is_listened_on",
        ],
    ),
    54: (
        "SSH without a trusted host key or without a private key",
        ["test_cluster_ssh.test_what_is_missing_of_ssh_has_its_step"],
    ),
    55: (
        "NO_COLOR, missing dataset",
        [
            "test_cli.test_colours_are_for_terminals_without_no_color",
            "test_cli.test_a_missing_dataset_is_named_before_a_chart_library_is_imported",
        ],
    ),
}
"""Cases by number: title, and tests that detect the fault. Words after a colon name files in `tests/data/har`."""


def command(test: str) -> str:
    """Shell command that runs a test from the root of the checkout; `KeyError` if there is no test of this name."""
    file, name = names()[test], test.partition(".")[2]
    if file.suffix == ".py":
        return f"pytest {file.relative_to(ROOT)}::{name}"
    return f"(cd emulation && go test -count 1 -run '^{name}$' ./{file.parent.relative_to(ROOT / 'emulation')})"


def main(numbers: list[str]) -> None:
    """Print all cases; if case numbers are given, print the commands that run the tests of these cases."""
    if numbers:
        print("\n".join(dict.fromkeys(command(test) for number in numbers for test in CASES[int(number)][1])))
        return
    for number, (title, tests) in CASES.items():
        print(f"{number:2}  {title}")
        for test in tests:
            print(f"      {test}")
    tests = {test for _, named in CASES.values() for test in named}
    print(f"{len(CASES)} cases, {len(tests)} tests")


if __name__ == "__main__":
    main(sys.argv[1:])
