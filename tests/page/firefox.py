"""Opens pages with the driver (drive.js) in Firefox, without a window, and says what was wrong in each.

firefox.py BROWSER PAGE...: speaks Firefox's own protocol (Marionette): lines of JSON behind their length.
"""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

SECONDS = 90
ATTEMPTS = 3


class Browser:
    def __init__(self, program, profile):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (profile / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
        self.process = subprocess.Popen(
            [program, "--headless", "--marionette", "--no-remote", "--profile", str(profile)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.socket = self.connect(port)
        self.number = 0
        self.receive()  # its greeting
        self.command("WebDriver:NewSession", {})

    def connect(self, port):
        end = time.monotonic() + SECONDS
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), SECONDS)
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    self.process.kill()
                    raise
                time.sleep(0.1)

    def receive(self):
        length = b""
        while not length.endswith(b":"):
            byte = self.socket.recv(1)
            if not byte:
                raise OSError("Firefox has ended")
            length += byte
        left, text = int(length[:-1]), b""
        while len(text) < left:
            text += self.socket.recv(left - len(text))
        return json.loads(text)

    def command(self, name, arguments):
        self.number += 1
        text = json.dumps([0, self.number, name, arguments]).encode()
        self.socket.sendall(str(len(text)).encode() + b":" + text)
        _, _, error, result = self.receive()
        if error:
            raise OSError(f"{name}: {error['message']}")
        return result

    def answer_of(self, page):
        self.command("WebDriver:Navigate", {"url": page.resolve().as_uri()})
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            answer = self.command("WebDriver:ExecuteScript", {
                "script": "return document.getElementById('r')?.textContent ?? null", "args": []})["value"]
            if answer is not None:
                return answer
            time.sleep(0.05)
        return "no answer"

    def close(self):
        try:
            self.command("Marionette:Quit", {"flags": ["eForceQuit"]})
            self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.socket.close()


def start(program):
    """A browser; None where it does not come up, which says nothing of the pages."""
    for attempt in range(ATTEMPTS):
        profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        try:
            browser = Browser(program, pathlib.Path(profile.name))
            browser.profile = profile  # as long as the browser
            return browser
        except OSError as why:
            print(f"  Firefox does not come up, attempt {attempt + 1}: {why}")
    return None


def main(program, pages):
    failed = False
    browser = start(program)
    if browser is None:
        print("test-page: skipped in Firefox, which does not start here")
    else:
        try:
            for page in map(pathlib.Path, pages):
                answer = browser.answer_of(page)
                name = page.name.split(".")[0]
                if answer.startswith("ok "):
                    print(f"  {name}, in Firefox: {answer}")
                else:
                    failed = True
                    print(f"  {name}, in Firefox: FAILED", *answer.splitlines()[:20], sep="\n    ")
        finally:
            browser.close()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
