"""Opens pages with the driver (drive.js) in a browser without a window, and says what was wrong in each.

open_pages.py chromium|firefox PROGRAM PAGE...
"""

import importlib
import json
import pathlib
import sys
import tempfile
import time

SECONDS = 90
WIDTHS = 1280, 390  # of the windows, in turn: a desk and a phone
ATTEMPTS = 3


def start(name, program):
    """A browser; None where it does not come up, which says nothing of the pages."""
    for attempt in range(ATTEMPTS):
        profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        try:
            browser = importlib.import_module(name).Browser(program, pathlib.Path(profile.name))
            browser.profile = profile  # as long as the browser
            return browser
        except OSError as why:
            print(f"  {name} does not come up, attempt {attempt + 1}: {why}")
    return None


def answer_of(browser, page, width):
    url = page.resolve().as_uri()
    browser.open(url, width)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        answer = browser.value_of(f"location.href.startsWith({json.dumps(url)})"
                                  " ? document.getElementById('r')?.textContent ?? null : null")
        if answer is not None:
            return answer
        time.sleep(0.02)
    return "no answer"


def main(name, program, pages):
    failed = False
    browser = start(name, program)
    if browser is None:
        print(f"test-page: skipped in {name}, which does not start here")
        return name == "chromium"
    try:
        if pages:
            answer_of(browser, pathlib.Path(pages[0]), WIDTHS[0])  # a browser that has just come up is slow
        for number, page in enumerate(map(pathlib.Path, pages)):
            width = WIDTHS[number % len(WIDTHS)]
            answer = answer_of(browser, page, width)
            page_name = page.name.split(".")[0]
            if answer.startswith("ok "):
                print(f"  {page_name}, in {name}, {width} px: {answer}")
            else:
                failed = True
                print(f"  {page_name}, in {name}, {width} px: FAILED", *answer.splitlines()[:20], sep="\n    ")
    finally:
        browser.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
