#!/usr/bin/env python3
"""Would the tests notice? Changes one operator or constant of the library at a time and runs them.

Every file below src/attention and src/compute is read for places where an operator, a comparison or a constant can
be swapped for another one. A seed puts these mutants in an order that does not depend on what else is in the tree,
and the first N that compile to something else are checked: killed when a test program fails, crashes or does not
end. Those in tests/mutants_kept.txt are left out, with the reason given there. Works on a copy of the tree and
goes on where it stopped: `make mutants N=200`.
"""
import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOMS = ["src/attention", "src/compute"]
# An index beyond its array ends the program, as it does in `make asan`.
CFLAGS = "CFLAGS=-O2 -g0 -w -fvisibility=default -fsanitize=bounds -fsanitize-undefined-trap-on-error"
COPIED = ["Makefile", "include", "src", "tests", "bench", "weights", "README.md"]

# ---------------------------------------------------------------- reading C

BLANKED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
                     re.DOTALL | re.MULTILINE)


def blank(text):
    """The text with comments, strings and directives replaced by spaces."""
    return BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def functions(code):
    """(name, start, end) of every function body."""
    depth, since, found = 0, 0, []
    for m in re.finditer(r"[{};]", code):
        c = m.group()
        if c == "{":
            if depth == 0:
                head = code[since:m.start()]
                name = re.search(r"(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head))
                inside = (name.group(1), m.end()) if head.rstrip().endswith(")") and name else None
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                if inside:
                    found.append((inside[0], inside[1], m.start()))
                since = m.end()
        elif depth == 0:
            since = m.end()
    return found


# ---------------------------------------------------------------- mutants

SWAPS = {"+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], "<": ["<=", ">"], "<=": ["<", ">"],
         ">": [">=", "<"], ">=": [">", "<"], "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"], "+=": ["-="],
         "-=": ["+="], "*=": ["/="], "|=": ["&="], "&=": ["|="], "<<": [">>"], ">>": ["<<"], "&": ["|"], "|": ["&"]}
WORDS = {"true": "false", "false": "true", "INFINITY": "0.0f", "NAN": "0.0f", "fmax": "fmin", "fmin": "fmax",
         "fmaxf": "fminf", "fminf": "fmaxf", "greater": "smaller", "continue": "break", "expf": "logf",
         "exp": "log", "log": "exp", "logf": "expf", "sin": "cos", "cos": "sin", "tanh": "sin", "tanhf": "sinf"}
TOKEN = re.compile(r"(?<= )(?:[-+*/%&|]=?|<<|>>|[<>]=?|==|!=|&&|\|\|)(?=[ \n])|\+\+|--|!(?=[\w(])|"
                   r"\b(?:0[xX][0-9a-fA-F]+[uUlL]*|\d+\.\d*(?:e[-+]?\d+)?f?|\d+(?:e[-+]?\d+)?[uUlL]*)\b|"
                   r"\b[A-Za-z_]\w*\b")
PASSED_OVER = re.compile(r"^\s*(?:(?:static |const )*(?:char|_Static_assert|case|default|goto)\b|__builtin_prefetch)")


def swaps(token, code, at):
    if token in SWAPS:
        # A choice of the smaller or the larger is the same with and without "or equal".
        rest = re.match(r"[^;{}]*", code[at:]).group()
        choice = "?" in rest and token in ("<", ">", "<=", ">=")
        return [SWAPS[token][1]] if choice else SWAPS[token]
    if token in ("++", "--"):
        return ["--" if token == "++" else "++"]
    if token == "!":
        return [""]
    if token in WORDS:
        return [WORDS[token]] if token != "greater" else []
    if re.match(r"0[xX]", token) or not token[0].isdigit():
        return []
    if re.search(r"[.e]", token):
        value = float(token.rstrip("f"))
        other = "1.0" if value == 0 else "0.0" if value == 1 else repr(2 * value)
        return [other + ("f" if token.endswith("f") else "")]
    value, suffix = re.match(r"(\d+)(.*)", token).groups()
    return [{"0": "1", "1": "0"}.get(value, str(int(value) + 1)) + suffix]


class Mutant:
    def __init__(self, path, function, text, start, end, new):
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        self.path, self.function, self.start, self.end, self.new = path, function, start, end, new
        self.line = text.count("\n", 0, start) + 1
        self.old_line = text[line_start:line_end].strip()
        self.new_line = (text[line_start:start] + new + text[end:line_end]).strip()
        self.change = "%s -> %s" % (text[start:end], new or "(nothing)")


def mutants_of(path, text):
    code, found = blank(text), []
    for name, first, last in functions(code):
        for m in TOKEN.finditer(code, first, last):
            line = code[code.rfind("\n", 0, m.start()) + 1:code.find("\n", m.start())]
            before = code[:m.start()].rstrip()[-1:]
            if PASSED_OVER.match(line) or (m.group() in "+-*&" and not re.match(r"[\w)\]]", before)):
                continue
            if before == "[" and re.match(r"\]\s*=\s*\{", code[m.end():]):
                continue  # the size of an array that is given whole
            found += [Mutant(path, name, text, m.start(), m.end(), new) for new in swaps(m.group(), code, m.end())]
    return found


def sources(root):
    for room in ROOMS:
        for where, _, names in sorted(os.walk(os.path.join(root, room))):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(where, name), root)


def all_mutants(root, seed):
    found, seen = [], {}
    for path in sources(root):
        with open(os.path.join(root, path)) as f:
            found += mutants_of(path, f.read())
    for m in found:  # the order of one does not depend on the others
        what = "\n".join([str(seed), m.path, m.function, m.old_line, m.new_line])
        seen[what] = seen.get(what, 0) + 1
        m.key = hashlib.sha256(("%s\n%d" % (what, seen[what])).encode()).hexdigest()
    return sorted(found, key=lambda m: m.key)


def read_kept(path):
    """{(file, what): reason}; lines `file | what | reason`, # comments. What: a line as it is after the change, a line
    as it is before (every change of it), both (`before -> after`, where one of them stands elsewhere too), a function()
    or * for all of the file."""
    kept = {}
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                if line.strip() and not line.startswith("#"):
                    file, rest = line.split(" | ", 1)
                    what, reason = rest.rsplit(" | ", 1)
                    kept[file.strip(), what.strip()] = reason.strip()
    return kept


# ---------------------------------------------------------------- building

class Workshop:
    """A copy of the tree with its shared library and the test programs linked against it."""

    def __init__(self, root, work):
        self.root, self.tree = root, os.path.join(work, "tree")
        self.env = dict(os.environ, OMP_WAIT_POLICY="passive", MHA_PROGRAM="build/mutant/mha",
                        CONFORMANCE_DIR="", MODELS_DIR="", LC_ALL="C")
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MHA_ISA"):
            self.env.pop(name, None)
        os.makedirs(self.tree, exist_ok=True)
        for name in COPIED:
            self.copy(name)
        self.make("mutant-programs", check=True)
        self.env["CCACHE_DISABLE"] = "1"  # no mutant is built twice
        self.library = self.path("build/libmutant.so")
        objects = os.path.join(self.tree, "build/obj")
        self.pristine = {}
        for where, _, names in os.walk(objects):
            for name in names:
                if name.endswith(".o"):
                    path = os.path.join(where, name)
                    with open(path, "rb") as f:
                        self.pristine[path] = (f.read(), os.stat(path).st_mtime_ns)

    def path(self, name):
        return os.path.join(self.tree, name)

    def copy(self, name):
        """Copies what differs, so that a second run builds only that."""
        source, target = os.path.join(self.root, name), self.path(name)
        if os.path.isdir(source):
            os.makedirs(target, exist_ok=True)
            there = set(os.listdir(source)) - {"__pycache__"}
            for gone in set(os.listdir(target)) - there:
                path = os.path.join(target, gone)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            for entry in sorted(there):
                self.copy(os.path.join(name, entry))
            return
        with open(source, "rb") as f:
            content = f.read()
        if os.path.exists(target):
            with open(target, "rb") as f:
                if f.read() == content:
                    return
        shutil.copy(source, target)

    def make(self, target, check=False):
        command = ["make", "-s", "-j2", "WERROR=", CFLAGS, target]
        return subprocess.run(command, cwd=self.tree, env=self.env, check=check, stdin=subprocess.DEVNULL,
                              stdout=None if check else subprocess.DEVNULL,
                              stderr=None if check else subprocess.DEVNULL).returncode == 0

    def apply(self, m):
        """Builds the mutant: "built", "does not compile" or "same code"."""
        path = self.path(m.path)
        with open(path) as f:
            text = f.read()
        self.undo = (path, text, os.stat(path).st_mtime_ns)
        with open(path, "w") as f:
            f.write(text[:m.start] + m.new + text[m.end:])
        if not self.make("build/libmutant.so"):
            return "does not compile"
        for path, (content, _) in self.pristine.items():
            with open(path, "rb") as f:
                if f.read() != content:
                    return "built"
        return "same code"

    def restore(self):
        path, text, when = self.undo
        with open(path, "w") as f:
            f.write(text)
        os.utime(path, ns=(when, when))
        for path, (content, when) in self.pristine.items():
            if not os.path.exists(path) or os.stat(path).st_mtime_ns != when:
                with open(path, "wb") as f:
                    f.write(content)
                os.utime(path, ns=(when, when))
        if os.path.exists(self.library):
            os.unlink(self.library)

    def tests(self):
        found = []
        programs = self.path("build/mutant")
        for where, _, names in os.walk(programs):
            for name in names:
                if name.startswith("test_"):
                    found.append(os.path.relpath(os.path.join(where, name), programs))
        return sorted(found)

    def passes(self, test, limit):
        """Runs a test program until it ends, a test of it fails, or the time is over."""
        run = subprocess.Popen([self.path("build/mutant/" + test)], cwd=self.tree, env=self.env, text=True,
                               errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
        group = run.pid
        previous = signal.signal(signal.SIGALRM, lambda *_: os.killpg(group, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, limit)
        failed = False
        try:
            for line in run.stdout:
                if "[  FAILED  ]" in line:
                    failed = True
                    break
        finally:
            if failed:
                os.killpg(group, signal.SIGKILL)
            code = run.wait()
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            run.stdout.close()
        return not failed and code == 0


# ---------------------------------------------------------------- checking

class State:
    """What is known so far, in a file."""

    def __init__(self, path):
        self.path = path
        self.times, self.results = {}, {}
        if os.path.exists(path):
            with open(path) as f:
                saved = json.load(f)
            self.times, self.results = saved["times"], saved["results"]

    def save(self):
        with open(self.path + ".new", "w") as f:
            json.dump({"times": self.times, "results": self.results}, f, indent=1)
        os.replace(self.path + ".new", self.path)

    def order(self, tests, path):
        """Those that killed mutants of this file first, then of any file, then the quickest."""
        here, anywhere = {}, {}
        for r in self.results.values():
            if r["verdict"] == "killed":
                anywhere[r["by"]] = anywhere.get(r["by"], 0) + 1
                if r["path"] == path:
                    here[r["by"]] = here.get(r["by"], 0) + 1
        per_second = lambda kills, t: -kills.get(t, 0) / (1 + self.times[t])
        return sorted(tests, key=lambda t: (per_second(here, t), per_second(anywhere, t), self.times[t], t))


def measure(shop, state, tests):
    """The unchanged library passes, and how long that takes."""
    for test in tests:
        if test not in state.times:
            started = time.monotonic()
            if not shop.passes(test, 600):
                sys.exit("mutate: %s fails on the unchanged library" % test)
            state.times[test] = time.monotonic() - started
            state.save()


def check(shop, state, tests, m, deadline):
    """What becomes of a mutant; "not done" when the time is over first: the next run goes on with the other tests."""
    passed = state.results.get(m.key, {}).get("passed", [])
    try:
        built = shop.apply(m)
        result = {"path": m.path, "line": m.line, "change": m.change, "old": m.old_line, "new": m.new_line,
                  "verdict": built, "by": ""}
        if built == "built":
            result["verdict"] = "survived"
            for test in state.order([t for t in tests if t not in passed], m.path):
                if time.monotonic() > deadline:
                    result["verdict"], result["passed"] = "not done", passed
                    break
                if not shop.passes(test, 5 + 5 * state.times[test]):
                    result["verdict"], result["by"] = "killed", test
                    break
                passed = passed + [test]
    finally:
        shop.restore()
    state.results[m.key] = result
    state.save()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", "--count", type=int, default=200, help="mutants to check")
    parser.add_argument("--from", dest="start", type=int, default=0, help="mutants to pass over first")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="stop after about this long, to be called again")
    parser.add_argument("--work", default="build/mutants", help="where the copy and the results are")
    parser.add_argument("--only", default="", help="files whose path holds this")
    parser.add_argument("--again", action="store_true", help="check those that survived once more")
    parser.add_argument("--list", action="store_true", help="print the mutants and check none")
    options = parser.parse_args()
    root = os.getcwd()
    deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
    kept, used = read_kept(os.path.join(root, "tests/mutants_kept.txt")), set()
    found = all_mutants(root, options.seed)
    for m in found:
        m.kept = {(m.path, what) for what in (m.new_line, m.old_line, m.old_line + " -> " + m.new_line,
                                              m.function + "()", "*")} & kept.keys()
        used |= m.kept
    for path, what in sorted(kept.keys() - used):
        print("mutate: tests/mutants_kept.txt: matches nothing: %s | %s" % (path, what), file=sys.stderr)
    if kept.keys() - used:
        return 2
    found = [m for m in found if options.only in m.path]
    mutants = [m for m in found if not m.kept]
    if options.list:
        for m in mutants:
            print("%s:%d: %s: %s" % (m.path, m.line, m.change, m.new_line))
        print("%d mutants, %d of them kept" % (len(found), len(found) - len(mutants)))
        return 0
    os.makedirs(options.work, exist_ok=True)
    state = State(os.path.join(options.work, "results-%d.json" % options.seed))
    shop = tests = None
    checked, stopped = [], False
    for m in mutants[options.start:]:
        if len(checked) == options.count:
            break
        result = state.results.get(m.key)
        if not result or result["verdict"] == "not done" or (options.again and result["verdict"] == "survived"):
            if time.monotonic() > deadline:
                stopped = True
                break
            if not shop:
                shop = Workshop(root, os.path.abspath(options.work))
                tests = shop.tests()
                measure(shop, state, tests)
            result = check(shop, state, tests, m, deadline)
            print("%s:%d: %s: %s %s" % (m.path, m.line, m.change, result["verdict"], result["by"]), flush=True)
        if result["verdict"] in ("killed", "survived"):
            checked.append((m, result))
    survivors = [(m, r) for m, r in checked if r["verdict"] == "survived"]
    for m, r in sorted(survivors, key=lambda s: (s[0].path, s[0].line)):
        print("survived: %s:%d: %s: %s" % (m.path, m.line, m.change, m.new_line))
    print("%d mutants checked of %d places, %d killed, %d survived (%.1f %% killed); %d left out with a reason%s" % (
        len(checked), len(found), len(checked) - len(survivors), len(survivors),
        100.0 * (len(checked) - len(survivors)) / max(1, len(checked)), len(found) - len(mutants),
        "; not done yet" if stopped else ""))
    return 0 if stopped or len(survivors) * 20 <= len(checked) else 1


if __name__ == "__main__":
    sys.exit(main())
