"""The checksum of a method's code: in result files, at a resume, between ranks."""

import functools
import importlib.util
import subprocess
import sys
import textwrap
import types
import unittest
import warnings
from pathlib import Path

import h5py
import numpy as np
from python_support import SOURCE, TINY, InFolder, python

import fedhpc
from fedhpc._code import digest

PLUGIN = """
import fedhpc
STEP = 1.0
seen, calls = [], 0

def taken(rows):
    \"\"\"What is taken.\"\"\"
    return rows * STEP

class Base(fedhpc.Algorithm):
    options = {"mu": 0.1}

    def round(self, round):
        global calls
        calls += 1
        seen.append(round.number)
        return [taken(rows) for rows in (1, 2)]

@fedhpc.algorithm("mine", "a method")
class Mine(Base):
    @staticmethod
    def helper():
        return {3, 1, 2}

    def evaluate(self, evaluation):
        return self.helper(), (lambda rows, by=2: rows * by)(1)
"""


class Digest(InFolder):
    def of(self, text, file="mine.py"):
        """The checksum of the class in a module of this text, by a Python of its own."""
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(path.parent)!r})
            import mine
            from fedhpc._code import digest, run_ended
            first = digest(mine.Mine)
            mine.seen.append(1)
            mine.calls += 1
            run_ended()
            print(first if digest(mine.Mine) == first else "it changes by itself")""")],
            capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def test_of_all_that_the_method_does(self):
        whole = self.of(PLUGIN)
        self.assertRegex(whole, "^[0-9a-f]{32}$")
        for old, new in (("STEP = 1.0", "STEP = 1.5"), ("rows * STEP", "rows + STEP"), ('"mu": 0.1', '"mu": 0.2'),
                         ("{3, 1, 2}", "{3, 1, 4}"), ("self.helper(), ", ""), ("by=2", "by=3"), ("calls += 1", "calls += 2"),
                         ("rows * by", "rows - by"), ("(1, 2)", "(1, 3)"), ("seen, calls = []", "seen, calls = [0]"), ("class Mine(Base)", "class Mine(Base, object)")):
            with self.subTest(new):
                self.assertIn(old, PLUGIN)
                (self.assertEqual if "object" in new else self.assertNotEqual)(self.of(PLUGIN.replace(old, new)), whole)

    def test_not_of_how_it_is_written(self):
        whole = self.of(PLUGIN)
        for old, new in (("What is taken.", "Other words."), ("class Base", "\n\n# a remark\nclass Base"),
                         ("seen, calls = [], 0", "seen, calls = [], 7")):
            with self.subTest(new):
                self.assertIn(old, PLUGIN)
                self.assertEqual(self.of(PLUGIN.replace(old, new)), whole)
        self.assertEqual(self.of(PLUGIN, "other/mine.py"), whole)
        self.assertEqual(self.of(PLUGIN, "site-packages/mine.py"), whole)  # its own package is no library

    def test_attributes_are_no_globals(self):
        def of(**scope):
            space = {"__name__": "a_method", **scope}
            exec("class Mine:\n    def round(self, setup):\n        return self.mu + setup.seed + used\n", space)
            return digest(space["Mine"])
        self.assertEqual(of(used=1, mu=1, seed=2), of(used=1, mu=3, seed=4))
        first, other = of(used=1), of(used=2)
        self.assertNotEqual(first, other)
        self.assertEqual(first[:16], other[:16], "constants are apart: ranks may differ in them")

    def test_what_a_method_finds_by_a_name(self):
        """Pairs of modules that differ in one place."""
        base = textwrap.dedent("""
            import dataclasses, enum, functools, re
            import numpy as np

            @dataclasses.dataclass(frozen=True)
            class Settings:
                mu: float = 0.1

            class Step:
                def __init__(self, size): self.size = size
                def __call__(self, x): return x * self.size

            class Slots:
                __slots__ = ("a",)

            class Kind(enum.Enum):
                A = 1

            LIST, TABLE, ARRAY, OBJECT = [1.0], {"a": 1}, np.arange(3.0), Settings()
            STEP, RULES = Step(1), {"up": lambda x: x + 1}

            class Window(list):
                def last(self): return self[-1]

            class Level(enum.Enum):
                LOW = 2

            PART, KIND, WORDS = slice(0, 3), np.dtype("f4"), re.compile("a+" * 200 + "c")
            WINDOW, LEVEL = Window([1.5]), Level.LOW
            WINDOW.width = 4
            VECTOR = np.vectorize(lambda x: x - 1)

            def nested(x):
                def inner():
                    "words"
                    return x
                return inner()

            class Mine:
                rules = (lambda x: x / 2,)
                def round(self, x, by=lambda y: y ** 2):
                    Slots()
                    return (LIST, TABLE, ARRAY, OBJECT.mu, STEP(x), RULES["up"], by, Kind.A, VECTOR, nested(x),
                            WINDOW.last(), LEVEL.value, PART, KIND, WORDS, self.twice())
                twice = functools.partialmethod(round, by=lambda y: 2 * y)
            """)

        def of(text):
            module = types.ModuleType("a_method")
            sys.modules["a_method"] = module
            self.addCleanup(sys.modules.pop, "a_method", None)
            exec(compile(text, "a_method.py", "exec"), vars(module))
            return digest(module.Mine)
        whole = of(base)
        self.assertEqual(of(base), whole)
        self.assertEqual(of(base.replace('"words"', '"other words"')), whole)
        for old, new in (("[1.0]", "[2.0]"), ('{"a": 1}', '{"a": 2}'), ("arange(3.0)", "arange(4.0)"), ("Settings()\n", "Settings(.2)\n"),
                         ("Step(1)", "Step(2)"), ("x * self.size", "x - self.size"), ("x + 1}", "x + 2}"), ("y ** 2", "y ** 3"),
                         ("self[-1]", "self[0]"), ("[1.5]", "[2.5]"), ("width = 4", "width = 5"),
                         ("LOW = 2", "LOW = 3"),
                         ("slice(0, 3)", "slice(0, 4)"), ('"f4"', '"f8"'), ("200 + ", "201 + "), ("2 * y", "3 * y"),
                         ("x / 2", "x / 4"), ("x - 1)", "x - 2)")):
            with self.subTest(new):
                self.assertIn(old, base)
                self.assertNotEqual(of(base.replace(old, new)), whole)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "this Python has no torch")
    def test_types_of_torch(self):
        def of(kind):
            space = {"__name__": "a_method"}
            exec(f"import torch\nKIND = torch.{kind}\nclass Mine:\n    def round(self, x): return x.to(KIND)\n", space)
            return digest(space["Mine"])
        self.assertEqual(of("float32"), of("float32"))
        self.assertNotEqual(of("float32"), of("float64"))

    def test_imports_inside_of_a_function_and_of_parts(self):
        Path("parts").mkdir()
        Path("parts/__init__.py").touch()
        Path("parts/steps.py").write_text("def step(x):\n    return x * 1\n", encoding="utf-8")
        for read in ("import parts.steps\n        return parts.steps.step(1)", "from parts.steps import step\n        return step(1)",
                     "import parts.steps as p\n        return p.step(1)"):
            digests = set()
            for factor in ("1", "20"):
                Path("parts/steps.py").write_text(f"def step(x):\n    return x * {factor}\n", encoding="utf-8")
                digests.add(self.of(f"import parts.steps\nseen, calls = [], 0\nclass Mine:\n    def round(self):\n        {read}\n"))
            self.assertEqual(len(digests), 2, read)

    def test_of_what_wraps_a_function(self):
        def of(by):
            @functools.lru_cache
            def cached(x):
                return x * by

            def twice(function):
                @functools.wraps(function)
                def both(self, x):
                    return function(self, function(self, x))
                return both

            class Mine(fedhpc.Algorithm):
                part = functools.partial(lambda x, y: x + y, y=2)

                @property
                def value(self):
                    return cached(1)

                @twice
                def round(self, x):
                    return self.part(x)

                @functools.cached_property
                def kept(self):
                    return 1

                @classmethod
                def made(cls):
                    return cls()
            return digest(Mine)
        self.assertEqual(of(2), of(2))
        self.assertNotEqual(of(2), of(3))

    def test_of_helpers_in_other_modules_but_libraries(self):
        text = PLUGIN.replace("import fedhpc\n", "import sys\nsys.path.insert(0, 'FOLDER')\nimport fedhpc\nimport its_helper\n"
                              ).replace("rows * STEP", "its_helper.scaled(rows)")
        for folder, same in (("project", False), ("site-packages", True)):
            digests = set()
            for factor in (1, 20):  # of other lengths: Python may take a compiled file for the newer one
                Path(folder).mkdir(exist_ok=True)
                Path(folder, "its_helper.py").write_text(f"def scaled(x):\n    return x * {factor}\n", encoding="utf-8")
                digests.add(self.of(text.replace("FOLDER", str(self.folder / folder))))
            self.assertEqual(len(digests) == 1, same, folder)


# A method of the name mine: the example's.
FEDAVG = (SOURCE / "examples/fedavg.py").read_text(encoding="utf-8").partition("\nif __name__")[0].replace("fedavg_py", "mine")
KEYS = {**TINY, "algorithm.name": "mine", "run.checkpoint_every": 1, "run.plugin": "mine.py"}


class InRuns(InFolder):
    def started(self, text, output, *arguments):
        Path("mine.py").write_text(text, encoding="utf-8")
        lines = []
        for section, name in (key.split(".") for key in KEYS):
            lines += [f"[{section}]", f"{name} = {str(KEYS[f'{section}.{name}']).lower()}"]
        Path("run.ini").write_text("\n".join(lines), encoding="utf-8")
        return subprocess.run([sys.executable, "-m", "fedhpc", "run", "run.ini", f"--run.output={output}", *arguments],
                              capture_output=True, text=True, check=False)

    def run_of(self, text, output, *arguments):
        done = self.started(text, output, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(output) as file:
            return file.attrs["code_digest"].decode()

    def resumed(self, output, rounds):
        return subprocess.run([sys.executable, "-m", "fedhpc", "resume", output, f"--run.rounds={rounds}"],
                              capture_output=True, text=True, check=False)

    def test_is_in_the_file_on_any_number_of_ranks(self):
        here = self.run_of(FEDAVG, "run.h5")
        self.assertRegex(here, "^[0-9a-f]{32}$")
        self.assertEqual(fedhpc.run({**KEYS, "run.output": "two.h5"}, ranks=2, progress=False).attributes["code_digest"], here)
        with h5py.File(fedhpc.run({**TINY, "run.output": "own.h5"}, progress=False).path) as file:
            self.assertNotIn("code_digest", file.attrs)

    def test_a_resume_with_other_code_is_told_of(self):
        first = self.run_of(FEDAVG, "run.h5")
        same = self.resumed("run.h5", 4)
        self.assertEqual((same.returncode, "other code" in same.stderr), (0, False), same.stderr)
        Path("mine.py").write_text(FEDAVG.replace("+= update.reduce()", "+= 0.5 * update.reduce()"), encoding="utf-8")
        other = self.resumed("run.h5", 5)
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertRegex(other.stderr, r"warning: checkpoint 'run.ckpt.4.h5' was made with other code of algorithm.name = mine; "
                                       "the run goes on with this one")
        with h5py.File("run.h5") as file:
            both = file.attrs["code_digest"].decode()
        self.assertRegex(both, f"^{first},[0-9a-f]{{32}}$")
        again = self.resumed("run.h5", 6)
        self.assertNotIn("other code", again.stderr)
        with h5py.File("run.h5") as file:
            self.assertEqual(file.attrs["code_digest"].decode(), both)

    def test_go_on_of_a_complete_run_with_other_code_begins_anew(self):
        first = self.run_of(FEDAVG, "run.h5")
        same = fedhpc.run(KEYS, ranks=2, progress=False, go_on=True)
        self.assertEqual((same.attributes["code_digest"], Path("run.old1.h5").exists()), (first, False))
        other = self.run_of(FEDAVG.replace("+= update.reduce()", "+= 0.5 * update.reduce()"), "run.h5", "--go-on")
        self.assertNotEqual(other, first)
        self.assertTrue(Path("run.old1.h5").exists())

    def test_go_on_of_a_run_that_mended_code_has_completed_finds_it(self):
        self.run_of(FEDAVG, "run.h5")
        mended = FEDAVG.replace("+= update.reduce()", "+= 1.0 * update.reduce()")
        Path("mine.py").write_text(mended, encoding="utf-8")
        self.assertIn("other code", self.resumed("run.h5", 6).stderr)
        with h5py.File("run.h5") as file:
            both = file.attrs["code_digest"].decode()
        self.run_of(mended, "run.h5", "--go-on", "--run.rounds=6")
        with h5py.File("run.h5") as file:
            self.assertEqual(file.attrs["code_digest"].decode(), both)
        self.assertFalse(Path("run.old1.h5").exists())

    def test_series_of_mended_code_come_and_go(self):
        text = FEDAVG.replace("= setup.initial_model()", "= setup.initial_model(); setup.add_metric('mine')")
        text = text.replace("        self.model += ", "        round.note('mine', 0.5)\n        self.model += ")
        self.run_of(FEDAVG, "run.h5")
        for rounds, code in ((4, text), (5, FEDAVG), (6, text)):
            Path("mine.py").write_text(code, encoding="utf-8")
            done = self.resumed("run.h5", rounds)
            self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File("run.h5") as file:
            np.testing.assert_array_equal(file["rounds/mine"], [np.nan] * 3 + [0.5, np.nan, 0.5])
            self.assertEqual(len(file["rounds/train_loss"]), 6)

    @staticmethod
    def drawing(drawn):
        return "import numpy as np\n" + FEDAVG.replace(
            "    def evaluate", f"    def drawn_in(self, round):\n        return {drawn}\n\n    def evaluate")

    def test_draws_are_those_of_round_1(self):
        for name, drawn, problem in (
                ("shape", "{'a': np.ones(4 if round < 3 else 2)}", r"gives 'a' Double\[2\] for 'a' Double\[4\]"),
                ("order", "{'a': 1., 'b': 2.} if round < 3 else {'b': 2., 'a': 1.}", r"gives 'b' Double\[\] for 'a' Double\[\]"),
                ("type", "{'a': 1 if round < 3 else .5}", r"gives 'a' Double\[\] for 'a' Long\[\]"),
                ("count", "{'a': 1., 'b': 2.} if round < 3 else {'a': 1.}", "gives 1 arrays, and gave 2")):
            done = self.started(self.drawing(drawn), f"{name}.h5", "--run.save=draws")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, problem + "; it has to give the arrays of round 1", name)

    def test_mended_code_draws_what_it_drew(self):
        self.run_of(self.drawing("{'a': np.ones(4)}"), "run.h5", "--run.save=draws")
        for drawn, problem in (("{'a': np.ones(4), 'b': 1.}", "'/draws/factors/b' is missing"),
                               ("{}", "'/draws/factors' has draws that are made no more"),
                               ("{'a': np.ones(2)}", "'/draws/factors/a' has another shape"),
                               ("{'a': np.ones(4, int)}", "'/draws/factors/a' has another type")):
            Path("mine.py").write_text(self.drawing(drawn), encoding="utf-8")
            done = self.resumed("run.h5", 9)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(problem + "; put the code back that it was made with", done.stderr)
        Path("mine.py").write_text(self.drawing("{'a': np.zeros(4)}"), encoding="utf-8")
        self.assertEqual(self.resumed("run.h5", 4).returncode, 0)

    def test_cohorts_of_another_size_are_refused(self):
        twice = FEDAVG.replace("    can_leave_rounds", "    cohorts_in_round = 2\n    can_leave_rounds")
        self.run_of(twice, "run.h5", "--run.save=draws", "--topology.participation=0.4")
        Path("mine.py").write_text(FEDAVG, encoding="utf-8")
        done = self.resumed("run.h5", 9)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("'/draws/cohort' has another shape; put the code back", done.stderr)

    def test_ranks_with_other_code_are_refused(self):
        text = FEDAVG.replace("+= update", "+= STEP() * update").replace(
            "import fedhpc\n", "import fedhpc\nRANK = fedhpc.rank()\nSTEP = (lambda: RANK + 1) if RANK else lambda: 1\n")
        keys = {key: value for key, value in KEYS.items() if key != "run.plugin"}
        done = python(f"{text}\ntry:\n    fedhpc.run({keys!r}, progress=False)\nexcept fedhpc.DataError as error:\n"
                      "    print(error)\n", ranks=2)
        self.assertEqual(done.stdout.count("rank 0 and rank 1 have different code of algorithm.name = mine; look at its "
                                           "files"), 2, done.stdout + done.stderr)

    def test_ranks_may_have_constants_of_their_own(self):
        text = FEDAVG.replace("import fedhpc\n", "import fedhpc\nRANK = fedhpc.rank()\n").replace(
            "        self.model += ", "        said = RANK == 0\n        self.model += ")
        keys = {key: value for key, value in KEYS.items() if key != "run.plugin"}
        done = python(f"{text}\nfedhpc.run({keys!r}, progress=False)\n", ranks=2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_cell_that_runs_twice_is_the_same(self):
        digests = set()
        for _ in range(2):
            scope = {"__name__": "__main__"}
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                exec(compile(FEDAVG.replace('"mine"', '"of_a_cell"'), "<cell>", "exec"), scope)
            digests.add(digest(scope["FedAvg"]))
        self.assertEqual(len(digests), 1)


if __name__ == "__main__":
    unittest.main()
