"""What Sphinx is told: the theme, Markdown, and how the docstrings of the module are read."""
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import headers  # noqa: E402: stands beside this file

import mha  # noqa: E402

project, author = "mha", "the authors of mha"
project_copyright = "the authors of mha"
version = release = mha.__version__
language = "en"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
html_theme = "furo"
html_title = f"mha {release}"
html_static_path = ["_static"]
html_css_files = ["manual.css"]
html_show_sourcelink = html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # a page cannot read another one from `file:`
html_use_index = True
highlight_language = "none"
pygments_style, pygments_dark_style = "default", "github-dark"
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain text, in which `names` are names, with sections of numpydoc. In these, and elsewhere after
    "word: ", a line begins an item, which goes on in indented lines. Other indented lines and examples stay.
    """
    made, item, section = [], False, ""
    for line, below in zip(lines, [*lines[1:], ""]):
        if re.fullmatch("-{3,}", line):
            continue
        if line and re.fullmatch("-{3,}", below):
            section, item = line, False
            made += ["", f"**{line}**", "", *(["::", ""] if line == "Examples" else [])]
            continue
        if section == "Examples":
            made.append("   " + line)
            continue
        begins = bool(section and line and line[0] != " ") or re.match(r"[a-z_]\w*(, \w+)*: ", line) is not None
        if begins:
            made += ([] if item else [""]) + ["* " + headers.plain(line)]
        elif item and line.startswith("    "):
            made.append("  " + headers.plain(line.strip()))
        elif line.startswith("    "):
            made += ([] if made and made[-1].startswith("   ") else ["", "::", ""]) + ["   " + line]
        else:
            made += ([""] if item or (made and made[-1].startswith("   ")) else []) + [headers.plain(line)]
        item = begins or (item and line.startswith("    "))
    lines[:] = [*made, ""]


def mended(app, failure):
    """What is lost where Debian builds furo. A style that it takes from the root of a web server is copied beside the
    theme's own. The dark colours hold for a reader who has not asked for light ones. The script that it imports, which
    pages of files cannot, is put into it.
    """
    static = pathlib.Path(app.outdir) / "_static"
    script, imported = static / "scripts" / "furo.js", 'import Gumshoe from "./gumshoe-patched.js";\n'
    text = script.read_text(encoding="utf-8")
    if text.startswith(imported):
        part = (static / "scripts" / "gumshoe-patched.js").read_text(encoding="utf-8")
        script.write_text(part + text.removeprefix(imported), encoding="utf-8")
    styles = static / "styles"
    for path in styles.glob("*.css"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"@import url\(/javascript/([^)]*)\)", text):
            shutil.copy(pathlib.Path("/usr/share/javascript") / name, styles)
            text = text.replace(f"url(/javascript/{name})", f"url({pathlib.PurePath(name).name})")
        dark = re.search(r'body\[data-theme="dark"\] (\{[^}]*\})', text)
        if dark and "prefers-color-scheme" not in text:
            text += f'\n@media screen and (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {dark[1]} }}\n'
        path.write_text(text, encoding="utf-8")


def setup(app):
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("build-finished", mended)
