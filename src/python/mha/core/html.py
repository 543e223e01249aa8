"""The frame of an HTML page that loads nothing and runs nothing."""
from __future__ import annotations

import html

from .tables import shown

STYLE = """figure{display:inline-block;margin:0 1em 1em 0}svg{border:1px solid #999}
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;
overflow-wrap:anywhere}
.wrong{background:#a93226;color:#fff}
table{border-collapse:collapse;display:block;margin:1em 0;overflow-x:auto}
.long{min-width:12em}th{white-space:nowrap}
th,td{border-bottom:1px solid #ccc;overflow-wrap:normal;padding:.2em .6em;text-align:left}
pre{background:#f4f4f4;padding:1em;overflow-x:auto}.passed{color:#186a3b}.failed{color:#a93226}"""


def text(value: object) -> str:
    """Text of others as text of a page: no markup, no control characters."""
    return html.escape(shown(value))


def document(title: str, body: str) -> str:
    """A page that loads nothing and runs nothing."""
    return ("<!DOCTYPE html><html lang=en><head><meta charset=utf-8>"
            "<meta name=viewport content=\"width=device-width, initial-scale=1\">"
            "<meta http-equiv=Content-Security-Policy "
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            f"<title>{text(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n")
