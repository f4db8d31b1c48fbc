"""Private names that tests reach: each file is listed with its names and the reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

LIMIT = "A limit or wait of the product is made so small that a test reaches it."
FAULT = "No public call causes this fault: the process, socket or function behind an object is replaced or killed."
STEP = "One step is tested without the testbed, network or time that the public call around it needs."
PARTS = "The test measures with the testbed's own instruments, which a user of the testbed does not get."
LIBRARY = "Another library offers this under a private name only."

ALLOWED: dict[str, dict[str, set[str]]] = {
    "integration/load_over_trr.py": {STEP: {"_context", "_open"}},
    "integration/test_dns_abuse.py": {FAULT: {"_quic"}},
    "integration/test_dns_local_servers.py": {LIBRARY: {"_msg_callback", "_TLSMessageType"}, FAULT: {"_new_socket"}},
    "integration/test_effects.py": {PARTS: {"_prober", "_delays"}, FAULT: {"_replay"}},
    "integration/test_h3.py": {PARTS: {"_core"}},
    "integration/test_link_honesty.py": {STEP: {"_round"}},
    "integration/test_second_server.py": {STEP: {"_deadline", "_core", "_run_until"}},
    "integration/test_server.py": {FAULT: {"_process"}},
    "integration/test_testbed.py": {FAULT: {"_guest", "_heartbeat"}},
    "unit/test_certificate_study.py": {STEP: {"_search"}},
    "unit/test_composition.py": {STEP: {"_EXCHANGES"}},
    "unit/test_conditions.py": {STEP: {"_load"}},
    "unit/test_cpu_load.py": {LIMIT: {"_SETTLE_WINDOW_S", "_SETTLE_MOST_S"}, STEP: {"_settle"}},
    "unit/test_dataset.py": {LIMIT: {"_AT_ONCE"}},
    "unit/test_discover.py": {STEP: {"_row", "_probe_hosts"}},
    "unit/test_dns_quic.py": {LIBRARY: {"_client_handle_certificate"}, STEP: {"_verifier", "_quic"}},
    "unit/test_guest.py": {FAULT: {"_memory_folder"}, STEP: {"_JobFile", "_JOB"}},
    "unit/test_link_delay.py": {FAULT: {"_clock_offset_ms"}},
    "unit/test_memory.py": {LIMIT: {"_AT_ONCE", "_OF_PILOT"}},
    "unit/test_page_load.py": {STEP: {"_page_load"}},
    "unit/test_pages.py": {FAULT: {"_wire"}, LIBRARY: {"_Compress"}},
    "unit/test_path_faults.py": {STEP: {"_hello", "_quic"}},
    "unit/test_probes.py": {STEP: {"_faults"}},
    "unit/test_process.py": {LIMIT: {"_STOP_TIMEOUT_S"}, FAULT: {"_process"}},
    "unit/test_report.py": {LIMIT: {"_WORTH_PROCESSES"}, FAULT: {"_code", "_PACKAGE"}},
    "unit/test_resolvers.py": {FAULT: {"_allowed", "_stops"}, STEP: {"_not_stopped"}},
    "unit/test_resources.py": {
        FAULT: {"_SYSTEM_FOLDERS", "_read", "_installed"},
        STEP: {"_tools", "_python", "_is_checkout", "_namespaces", "_own", "_PACKAGES"},
    },
    "unit/test_rounds.py": {
        LIMIT: {"_PAUSES_S"},
        STEP: {
            "_prober", "_servers", "_checks", "_delay_meter", "_replay", "_middlebox", "_delays", "_calibrate",
            "_round", "_proved_round", "_clock_unset",
        },
    },
    "unit/test_servers.py": {FAULT: {"_early_data"}, STEP: {"_tests", "_write", "_early_answer", "_in_time"}},
    "unit/test_store.py": {FAULT: {"_db"}},
}  # fmt: skip
"""File, reason, names."""

PROTOCOLS = {"_repr_markdown_", "_repr_mimebundle_", "_ipython_display_"}
"""Methods that IPython documents."""


def reached(tree: ast.AST) -> set[str]:
    """Private names of others that code reads, imports or replaces."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        ):
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crosslayer"):
            names.update(alias.name for alias in node.names)
            names.update((node.module or "").split("."))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            texts = (part.value for part in node.args if isinstance(part, ast.Constant))
            names.update(text.rpartition(".")[2] for text in texts if isinstance(text, str))
    return {name for name in names if name.startswith("_") and not name.startswith("__")} - PROTOCOLS


@pytest.mark.slow
def test_private_names_are_reached_for_a_reason_only() -> None:
    results = {}
    for path in sorted(TESTS.rglob("*.py")):
        if "benchmarks" not in path.parts and (names := reached(ast.parse(path.read_text(encoding="utf-8")))):
            results[str(path.relative_to(TESTS))] = names
    assert results == {file: set().union(*reasons.values()) for file, reasons in ALLOWED.items()}


def test_each_way_to_reach_one_is_seen() -> None:
    code = (
        'from crosslayer.box import _x\nmonkeypatch.setattr(box, "_y", 1)\nbox._z\nself._own\ndrawing._repr_markdown_\n'
    )
    assert reached(ast.parse(code)) == {"_x", "_y", "_z"}
