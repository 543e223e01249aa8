"""Chromium without a window, by its own protocol (DevTools): messages of JSON on a web socket."""

import base64
import json
import os
import socket
import struct
import subprocess
import time
import urllib.request

SECONDS = 90


class Browser:
    def __init__(self, program, profile):
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1600",
             "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.number = 0
        try:
            self.socket = self.connect(profile / "DevToolsActivePort")
        except OSError:
            self.process.kill()
            raise

    def connect(self, port_file):
        end = time.monotonic() + SECONDS
        while True:
            try:
                port = int(port_file.read_text().split()[0])
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=SECONDS) as answer:
                    page = next(target for target in json.load(answer) if target["type"] == "page")
                return self.shake_hands(port, page["webSocketDebuggerUrl"].split("/", 3)[3])
            except (OSError, IndexError, StopIteration) as why:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise OSError(f"no page to talk to: {why}") from why
                time.sleep(0.1)

    def shake_hands(self, port, path):
        made = socket.create_connection(("127.0.0.1", port), SECONDS)
        key = base64.b64encode(os.urandom(16)).decode()
        made.sendall(f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.bytes_of(made, 1)
        return made

    @staticmethod
    def bytes_of(connection, count):
        found = b""
        while len(found) < count:
            more = connection.recv(count - len(found))
            if not more:
                raise OSError("Chromium has ended")
            found += more
        return found

    def receive(self):
        """A message: one frame, which a server does not mask (RFC 6455, section 5.2)."""
        length = self.bytes_of(self.socket, 2)[1]
        if length >= 126:
            size, form = (2, ">H") if length == 126 else (8, ">Q")
            length = struct.unpack(form, self.bytes_of(self.socket, size))[0]
        return json.loads(self.bytes_of(self.socket, length))

    def command(self, method, parameters):
        self.number += 1
        text = json.dumps({"id": self.number, "method": method, "params": parameters}).encode()
        mask = os.urandom(4)
        self.socket.sendall(struct.pack(">BBH", 0x81, 0xFE, len(text)) + mask
                            + bytes(byte ^ mask[i % 4] for i, byte in enumerate(text)))
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                break
        if "error" in answer:
            raise OSError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url, width):
        self.command("Emulation.setDeviceMetricsOverride",
                     {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500})
        self.command("Page.navigate", {"url": url})

    def value_of(self, expression):
        return self.command("Runtime.evaluate", {"expression": expression})["result"].get("value")

    def close(self):
        self.process.kill()
        self.process.wait(SECONDS)
        self.socket.close()
