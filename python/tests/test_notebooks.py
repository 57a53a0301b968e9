"""The notebooks: their code, cell by cell, with what they assert of their figures."""

import json
import os
import pathlib
import tempfile
import unittest

os.environ["MPLBACKEND"] = "agg"

PYTHON = pathlib.Path(__file__).resolve().parent.parent


class Notebooks(unittest.TestCase):
    def test_they_run_and_draw(self):
        import matplotlib.pyplot as pyplot

        notebooks = sorted((PYTHON / "notebooks").glob("*.ipynb"))
        self.assertTrue(notebooks)
        for path in notebooks:
            cells = json.loads(path.read_text())["cells"]
            code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
            self.assertTrue(any("assert " in cell for cell in code), f"{path.name} asserts nothing")
            room = {"print": lambda *_, **__: None}
            before = os.getcwd()
            with tempfile.TemporaryDirectory() as place, self.subTest(notebook=path.name):
                os.chdir(place)
                try:
                    for at, cell in enumerate(code):
                        exec(compile(cell, f"{path.name}, code cell {at}", "exec"), room)
                    self.assertGreaterEqual(len(pyplot.get_fignums()), 2)
                finally:
                    os.chdir(before)
                    pyplot.close("all")

    def test_they_hold_no_outputs(self):
        for path in (PYTHON / "notebooks").glob("*.ipynb"):
            for cell in json.loads(path.read_text())["cells"]:
                self.assertFalse(cell.get("outputs"), f"{path.name}: clear its outputs before you commit it")


if __name__ == "__main__":
    unittest.main()
