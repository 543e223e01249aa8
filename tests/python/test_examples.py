"""The examples, and the code in the module's README, run and say what they promise."""
import glob
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT

EXAMPLES = f"{ROOT}/src/python/examples"
SAID = {"numpy_kernel": "your numbers equal, within float32 rounding, fill-0", "layer_by_layer": "merge-untransposed",
        "count_a_config": "8,030,261,248 parameters", "replace_attention_ref": "17 passed"}


@pytest.mark.parametrize("name", sorted(SAID))
def test_example(name):
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if name.startswith("replace") else []
    run = subprocess.run([sys.executable, *test, f"{EXAMPLES}/{name}.py"], capture_output=True, text=True)
    assert run.returncode == 0 and SAID[name] in run.stdout, run.stdout + run.stderr


def test_every_example_is_run():
    assert {os.path.basename(path)[:-3] for path in glob.glob(f"{EXAMPLES}/*.py")} == set(SAID)


def test_code_of_the_readme(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", pathlib.Path(ROOT, "src/python/README.md").read_text(), re.S)
    assert len(blocks) == 4 and len(blocks[0].splitlines()) == 3  # tests/peers/test_page.py runs the last
    (tmp_path / "my_project.py").write_text(
        "import mha, numpy\n"
        "q = numpy.random.default_rng(0).standard_normal((1, 2, 5, 8)).astype('f4')\nk = v = q[:, :, ::-1].copy()\n"
        "kernel = mha.scaled_dot_product_attention\n")
    for code, said in ((blocks[0], "causal-missing"), (blocks[1] + blocks[2], "")):
        env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ['PYTHONPATH']}"}
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT)
        assert run.returncode == 0 and said in run.stdout, run.stderr


@pytest.mark.needs("nbclient", "nbformat")
def test_notebook():
    import nbclient
    import nbformat

    notebook = nbformat.read(f"{EXAMPLES}/first_steps.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [output["data"]["text/html"] for cell in notebook.cells for output in cell.get("outputs", [])]
    assert len(shown) == 4 and all("<table>" in html.replace("&lt;", "<").replace("&gt;", ">") for html in shown)
    assert "groups-last-first" in shown[2]
