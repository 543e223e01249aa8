"""Counts for tests/run_test.sh, in cmocka's words, and why a test was skipped. Packages that a test needs."""
import os

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# If this is set, no test is left out, and a skipped test fails.
NO_SKIPS = bool(os.environ.get("MHA_NO_SKIPS"))
OLDEST = {"torch": "2.0"}
LEFT_OUT = "make test-torch runs tests that need packages of tests/peers/requirements.txt"


def pytest_configure(config):
    config.addinivalue_line("markers", "all_diagnoses: every failure of a report is diagnosed (test_conform.py)")
    config.addinivalue_line("markers", "needs(*packages): packages of tests/peers/requirements.txt that a test imports")


def is_missing(package):
    try:
        pytest.importorskip(package, OLDEST.get(package))
    except pytest.skip.Exception:
        return True
    return False


def pytest_collection_modifyitems(config, items):
    needs = [(item, [name for mark in item.iter_markers("needs") for name in mark.args]) for item in items]
    missing = set() if NO_SKIPS else set(filter(is_missing, sorted({name for _, names in needs for name in names})))
    left_out = [item for item, names in needs if missing.intersection(names)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    config.left_out = len(left_out)


def reason(report):
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.replace("Skipped: ", "")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    fail_if_skipped((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    fail_if_skipped((yield).get_result())


def fail_if_skipped(report):
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped, with MHA_NO_SKIPS set: {reason(report)}"


def pytest_sessionfinish(session):
    if session.testscollected == 0 and getattr(session.config, "left_out", 0):
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter, config):
    stats = terminalreporter.stats
    for word, keys in (("PASSED", ["passed"]), ("FAILED", ["failed", "error"]), ("SKIPPED", ["skipped"])):
        count = sum(len(stats.get(key, [])) for key in keys)
        if count:
            terminalreporter.write_line(f"[  {word}  ] {count} test(s).")
    for report in stats.get("skipped", []):
        terminalreporter.write_line(f"skipped: {report.nodeid}: {reason(report)}")
    for _ in range(getattr(config, "left_out", 0)):
        terminalreporter.write_line(f"skipped: {LEFT_OUT}")
