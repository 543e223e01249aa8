"""Firefox without a window, by its own protocol (Marionette): lines of JSON behind their length."""

import json
import socket
import subprocess
import time

SECONDS = 90


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

    def open(self, url, width):
        """Firefox makes no window narrower than 450 px."""
        self.command("WebDriver:SetWindowRect", {"width": width, "height": 844})
        self.command("WebDriver:Navigate", {"url": url})

    def value_of(self, expression):
        return self.command("WebDriver:ExecuteScript", {"script": f"return {expression}", "args": []})["value"]

    def close(self):
        try:
            self.command("Marionette:Quit", {"flags": ["eForceQuit"]})
            self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.socket.close()
