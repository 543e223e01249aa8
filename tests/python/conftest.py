"""Counts for tests/run_test.sh, in cmocka's words, and why a test was skipped."""
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def pytest_terminal_summary(terminalreporter):
    stats = terminalreporter.stats
    for word, keys in (("PASSED", ["passed"]), ("FAILED", ["failed", "error"]), ("SKIPPED", ["skipped"])):
        count = sum(len(stats.get(key, [])) for key in keys)
        if count:
            terminalreporter.write_line(f"[  {word}  ] {count} test(s).")
    for report in stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"skipped: {report.nodeid}: {reason.replace('Skipped: ', '')}")
