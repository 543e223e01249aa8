"""Finds unclear phrases in the project's prose: words.py [FILE]... (all pages without one).

Code, quoted output, and lists that tests write from tables are no prose.
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

# A phrase and its replacement, as regular expressions for text in lower case.
PHRASES = {
    r"somebody|nobody|whoever|whatever": "the user, the caller, any",
    r"held against|holds? against|judge[ds]?|judging": "compare, check",
    r"(?:is|are) (?:said|told|heard|asked)(?! for)": "an active verb",
    r"so many": "a number",
    r"(?:those|that) (?:that|which)": "a noun",
    r"of (?:which|whom)|of whose": "a sentence of its own",
    r"the same,? but": "the difference",
    r"so, too|as ever|mended?|company": "another word",
    r"is there(?! (?:a|an)\b)": "exists",
    r"stands? (?:in|for|beside|there)|(?:it|they|that|which) lies? in": "a verb, is stored in",
    r"in (?:the )?place of": "instead of",
    r"behind": "after",
    r"beside": "next to, compared with",
    r"alone": "only",
    r"with its own words|odd": "another word",
}
BEGIN = re.compile(r"(?:\A|[.:;!?]\s+|\n\s*\n|\n\s*(?:[-*#]+|\d+\.) |\| )\**"
                   r"(what|who|whose|whoever|whatever|that which)\b", re.I)
PHRASE = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in PHRASES), re.I)
GENERATED = re.compile(r"<!-- (\w[\w-]*):.*?<!-- end of \1 -->", re.S)
CODE = re.compile(r"^```.*?^```|^(?: {4}|\t).*?$|<!--.*?-->", re.S | re.M)


def blank(found: re.Match[str]) -> str:
    """The same lines without text."""
    return "\n" * found[0].count("\n")


def faults(path: Path) -> list[str]:
    """The phrases of a page, each with its line."""
    text = CODE.sub(blank, GENERATED.sub(blank, path.read_text(encoding="utf-8")))
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\"[^\"\n]*\"", lambda found: "x" + blank(found), text)
    lines = []
    for hit in sorted([*PHRASE.finditer(text), *BEGIN.finditer(text)], key=re.Match.start):
        number = text.count("\n", 0, hit.start(hit.lastindex or 0)) + 1
        better = next((new for old, new in PHRASES.items() if re.fullmatch(old, hit[0], re.I)), "a noun first")
        lines.append(f"{path}:{number}: \"{' '.join(hit[0].split())}\": write {better}")
    return lines


if __name__ == "__main__":
    pages = [Path(name) for name in sys.argv[1:]] or sorted(
        path for path in [*Path().glob("*.md"), *(path for top in ("src", "tests", "bench", "weights")
                                                 for path in Path(top).rglob("*.md"))]
        if "transcripts" not in path.parts and path.name not in ("CHANGELOG.md", "RESULTS.md", "ACCURACY.md"))
    wrong = [line for page in pages for line in faults(page)]
    print("\n".join(f"check-words: {line}" for line in wrong), file=sys.stderr, end="\n" if wrong else "")
    if not wrong:
        print(f"{len(pages)} pages have no unclear phrase")
    sys.exit(bool(wrong))
