"""What Sphinx is told: the theme, Markdown, and how the docstrings of the module are read."""
import pathlib
import re
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
    """Docstrings are plain text, in which `names` are names. "word: what it is" begins an item, which goes on in lines
    that are indented; other lines that are indented, behind an empty one, stay as they are."""
    made, item = [], False
    for line in lines:
        begins = re.match(r"[A-Za-z_][\w, *]*: ", line) is not None
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


def setup(app):
    app.connect("autodoc-process-docstring", plain_docstring)
