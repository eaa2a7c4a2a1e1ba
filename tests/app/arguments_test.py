"""What a person types: methods switched by a word, near misses, keys given twice, requests for help, ranks."""

import re
import subprocess
from pathlib import Path

import h5py
from app_support import SMALL_RUN, AppCase, environment, fedhpc, main, open_mpi, options

ROOT = Path(__file__).resolve().parents[2]
OF_FEDPROX = SMALL_RUN + "[run]\nrounds = 2\nprogress = none\n[algorithm]\nname = fedprox\nmu = 0.5\ncodec = bf16\n"
OF_SEVERAL = """[algorithm]
name = fedprox
[algorithm.fedprox]
mu = 0.5
[algorithm.pfedsop]
lambda = 2
"""


class Arguments(AppCase):
    def algorithm(self, text, *arguments, notes=()):
        """The section [algorithm] that a run has stored; `notes`: words of each note that it prints."""
        done = self.run_ok("run", self.ini(text), *arguments, "--run.output=out.h5", "--force")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), len(notes), done.stderr)
        for line, words in zip(lines, notes):
            self.assertTrue(line.startswith("fedhpc: note: "), line)
            for word in words:
                self.assertIn(word, line)
        with h5py.File(self.folder / "out.h5") as file:
            config = file.attrs["config"].decode()
        section = config[config.index("[algorithm]"):].split("\n\n")[0].splitlines()[1:]
        return dict(line.split(" = ") for line in section)

    def refused(self, *arguments, words, without=(), ranks=0):
        done = fedhpc(*arguments, cwd=self.folder, ranks=ranks)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        for word in without:
            self.assertNotIn(word, done.stderr)

    # Methods

    def test_another_method_over_the_configuration_of_one(self):
        stored = self.algorithm(OF_FEDPROX, "--algorithm.name=fedavg",
                                notes=[["algorithm.name = fedprox", "with fedavg", "left out: algorithm.mu"]])
        self.assertEqual((stored["name"], stored["codec"]), ("fedavg", "bf16"))
        self.assertNotIn("mu", stored)
        # Of the same name in both, with other meanings.
        stored = self.algorithm(OF_FEDPROX.replace("fedprox\nmu", "pfedsop\nlambda"), "--algorithm.name=ditto",
                                notes=[["algorithm.lambda"]])
        self.assertEqual(self.algorithm(OF_FEDPROX)["mu"], "0.5")

    def test_sections_of_methods(self):
        text = SMALL_RUN + "[run]\nrounds = 1\nprogress = none\n" + OF_SEVERAL
        self.assertEqual(self.algorithm(text)["mu"], "0.5")
        self.assertNotIn("mu", self.algorithm(text, "--algorithm.name=fedavg"))
        self.assertEqual(self.algorithm(text, "--algorithm.name=pfedsop")["lambda"], "2")
        # The command line over the file, a method's own key over the plain one.
        self.assertEqual(self.algorithm(text, "--algorithm.mu=0.25")["mu"], "0.25")
        self.assertEqual(self.algorithm(text, "--algorithm.fedprox.mu=0.125", "--algorithm.mu=0.25")["mu"], "0.125")
        self.assertNotIn("mu", self.algorithm(text, "--algorithm.name=fedavg", "--algorithm.fedprox.mu=0.125"))

    def test_a_method_of_the_command_line_over_a_file_that_names_none(self):
        text = OF_FEDPROX.replace("name = fedprox\n", "", 1)
        self.assertEqual(self.algorithm(text, "--algorithm.name=fedprox")["mu"], "0.5")
        self.refused("run", self.ini(text), words=["config.ini:", "algorithm.mu", "fedavg has no such key", "fedprox"])

    def test_a_method_s_own_key_beside_privacy(self):
        for text, *keys in ([SMALL_RUN, "--privacy.clip=1"], [SMALL_RUN + "[privacy]\nclip = 1\n"]):
            self.refused("run", self.ini(text), *keys, "--algorithm.transmit_fraction=0.5",
                         words=["'privacy.clip' cannot be '1' with algorithm.name = fedavg as it is configured",
                                "leave the method's own compression out"],
                         without=["no effect"])

    def test_what_does_not_act_is_quoted_as_given(self):
        self.refused("plan", self.ini("[algorithm]\nname = fedlmt\n"), "--model.conv_view=auto",
                     words=["'model.conv_view' = 'auto' has no effect"])

    def test_what_does_not_act_is_checked(self):
        ini = self.ini(OF_FEDPROX)
        for argument, words in {
            "--algorithm.fedprox.mu=-1": ["algorithm.fedprox.mu", "'-1'", "at least 0"],
            "--algorithm.fedprx.mu=1": ["algorithm.fedprx.mu", "no method 'fedprx'", "did you mean 'fedprox'"],
            "--algorithm.fedprox.mi=1": ["algorithm.fedprox.mi", "fedprox has no such key", "'algorithm.mu'"],
        }.items():
            self.refused("run", ini, "--algorithm.name=fedavg", argument, words=words)
        self.refused("run", self.ini(OF_FEDPROX.replace("0.5", "x")), "--algorithm.name=fedavg",
                     words=["config.ini:", "'algorithm.mu'", "'x'"])
        self.refused("run", ini, "--algorithm.reset_interval=2", words=["fedprox has no such key", "fedmud"])

    def test_resume_with_the_keys_of_a_run(self):
        given = ["--algorithm.name=fedavg", "--algorithm.fedprox.mu=0.125"]
        self.algorithm(OF_FEDPROX, *given, notes=[["algorithm.mu"]])
        self.run_ok("resume", "out.h5", *given, "--run.rounds=3")
        self.refused("resume", "out.h5", "--algorithm.name=fedprox", words=["algorithm.name", "'fedprox'", "'fedavg'"])

    # Words that are nearly right

    def test_hints(self):
        ini = self.ini(OF_FEDPROX)
        for arguments, hint in {("--learning_rate=0.1",): "train.lr", ("--train.learning_rate=0.1",): "train.lr",
                                ("--lr=0.1",): "train.lr", ("--num_clients=3",): "data.clients",
                                ("--run.reproducible=True",): "true", ("--run.reproducible=FALSE",): "false",
                                ("--run.rounds=1e3",): "1000", ("--data.clients=5.0",): "5",
                                ("--train.lr", "0.1"): "--train.lr=0.1"}.items():
            self.refused("run", ini, *arguments, words=[f"did you mean '{hint}'?"])
        self.refused("run", ini, "--run.rounds=0.5", words=["a whole number"], without=["did you mean"])
        self.refused("run", ini, "--run.rounds=-1e3", words=["at least 1"], without=["did you mean"])

    def test_a_key_given_twice(self):
        note = ["'algorithm.mu'", "more than once", "'0.25', the last, counts", "'0.125' does not"]
        twice = ["--algorithm.mu=0.125", "--run.rounds=1", "--algorithm.mu=0.25"]
        self.assertEqual(self.algorithm(OF_FEDPROX, *twice, notes=[note])["mu"], "0.25")
        done = self.run_ok("plan", self.ini(OF_FEDPROX), "--json", *twice, ranks=2)
        self.assertEqual(done.stderr.count("fedhpc: note: "), 1, done.stderr)
        self.refused("run", self.ini(OF_FEDPROX), "--run.rounds=2", "--run.rounds=x", words=["'x'"])
        # What does not count is checked all the same, as an overruled value of a file is.
        for wrong, right in (("--run.rounds=x", "--run.rounds=2"), ("--algorithm.mu=x", "--algorithm.mu=0.25"),
                             ("--algorithm.fedprox.mu=x", "--algorithm.fedprox.mu=0.25")):
            self.refused("run", self.ini(OF_FEDPROX), wrong, right, words=["'x'"])

    # Help

    def test_help_where_it_is_looked_for(self):
        for words in (["run", "--help"], ["resume", "-h"], ["plan", "x.ini", "--help"], ["list", "--help"]):
            self.assertEqual(self.run_ok(*words).stdout, self.run_ok("help", words[0]).stdout)
        self.assertEqual(self.run_ok("run", "--help", ranks=2).stdout.count("Exit code 0"), 1)
        self.assertTrue(self.run_ok("help", "lr").stdout.startswith("train.lr\n"))
        names = re.findall(r"^\w+\.name$", self.run_ok("help", "name").stdout, re.M)
        self.assertEqual(names, ["data.name", "model.name", "algorithm.name"])
        section = self.run_ok("help", "train").stdout
        keys = re.findall(r"^[a-z]+\.[a-z_0-9]+$", section, re.M)
        self.assertIn("train.lr", keys)
        self.assertTrue(all(key.startswith("train.") for key in keys))
        self.assertTrue(self.run_ok("help", "run.").stdout.startswith("[run]\nrun.seed\n"))
        of_mu = re.findall(r"^  methods: (.*)$", self.run_ok("help", "algorithm.mu").stdout, re.M)
        self.assertEqual(of_mu, ["fedprox", "fednova", "moon", "fedprox_ft", "ditto"])
        self.assertIn("  methods: fedavg, ", self.run_ok("help", "k").stdout)

    def test_all_keys_by_section(self):
        out = self.run_ok("help", "keys").stdout
        sections = re.findall(r"^\[(\w+)\]$", out, re.M)
        self.assertEqual(len(set(sections)), len(sections))
        for text in re.split(r"^(?=\[)", out, flags=re.M)[1:]:
            section = text[1:text.index("]")]
            keys = re.findall(r"^([a-z]+)\.[a-z_0-9]+$", text, re.M)
            self.assertEqual(set(keys), {section})
        self.assertEqual(out.count("\nalgorithm.k\n"), 1, "a key that means one thing stands there once")

    def test_a_key_says_of_each_method_with_what_it_acts(self):
        """help METHOD and help keys, which tells what methods have in common once, say the same."""
        def told(name):
            """(key, what it is, what it acts with, methods) in the help on `name`."""
            text = self.run_ok("help", name).stdout
            for key, sentence, rest in re.findall(r"^(\w+\.\w+)\n((?:  .*\n){3})((?:  .*\n)*)", text, re.M):
                acting, having = (re.findall(rf"^  {what}: (.*)$", rest, re.M) for what in ("acts with", "methods"))
                yield key, sentence, acting, having

        methods = [line.split("\t")[0] for line in self.run_ok("list", "algorithms").stdout.splitlines()]
        of_all = {}
        for key, sentence, acting, having in told("keys"):
            for method in having[0].split(", ") if having else ():
                found = [re.fullmatch(r"(.*?)(?: \(([\w, ]+)\))?", one).groups() for one in acting]
                of_all[method, key, sentence] = {words for words, some in found
                                                 if not some or method in some.split(", ")}
        of_each = {(method, key, sentence): set(acting)
                   for method in methods for key, sentence, acting, _ in told(method)}
        self.assertGreater(sum(map(len, of_each.values())), 300)
        self.assertEqual(of_all, of_each)
        for key, words in (("train.clip_norm", "algorithm.name other than pfedgp (pfedgp)"),
                           ("train.lr_unit", "algorithm.name other than sfedhp (sfedhp)"),
                           ("train.buffers", "algorithm.transmit_fraction = 1 (fedavg)"),
                           ("data.alpha", "data.partition = dirichlet")):
            self.assertIn(f"  acts with: {words}\n", self.run_ok("help", key).stdout)

    def test_bare_list(self):
        out = self.run_ok("list").stdout
        kinds = dict(line.split("\t") for line in out.splitlines())
        self.assertEqual(list(kinds), ["algorithms", "models", "datasets", "partitioners", "factorisations", "codecs"])
        for kind, names in kinds.items():
            told = [line.split("\t")[0] for line in self.run_ok("list", kind).stdout.splitlines()]
            self.assertEqual(names.split(", "), told)

    # Ranks

    def test_a_refusal_on_ranks_is_one_line(self):
        """Open MPI 4's own words on an exit code that is not 0 are left out by its --quiet; others' are none of ours."""
        ini = self.ini(OF_FEDPROX)
        quiet = [options.mpiexec, *(["--quiet"] if open_mpi().startswith("4.") else []), "-n", "3", options.fedhpc]
        for words in (["run", ini, "--train.lr=-1"], ["plan", ini, "--json", "--data.clients=0"], ["resume", "no.h5"],
                      ["help", "x"], ["export", "no.h5", "--csv", "csv"], ["bogus"]):
            with self.subTest(words):
                done = subprocess.run([*quiet, *map(str, words)], cwd=self.folder, env=environment(),
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                said = done.stderr if "--quiet" in quiet else "".join(
                    f"{line}\n" for line in done.stderr.splitlines() if "fedhpc:" in line)
                self.assertRegex(said, r"\A\0?fedhpc: error: [^\n]*\n\Z")

    def test_what_authors_have_otherwise(self):
        """configs/authors/: keys and values that there are, and that act."""
        paths = sorted((ROOT / "configs" / "authors").glob("*.ini"))
        self.assertTrue(paths)
        for path in paths:
            with self.subTest(path.name):
                files = [f"--data.dir={self.data}"] if "name = mnist" in path.read_text() else []
                done = self.run_ok("plan", path, *files)
                few = r"(fedhpc: warning: \d+ of 20 clients have no training samples.*\n)?"  # of the test's small files
                self.assertRegex(done.stderr, rf"\A{few}\Z")

    def test_the_readmes_ranks(self):
        """README's commands for several ranks, as printed, on however few cores."""
        block, = [block for block in re.findall(r"^```\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
                  if "mpirun -n 4 build" in block]
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "build/release/fedhpc").symlink_to(options.fedhpc)
        (self.folder / "results").mkdir()
        for name in ("tools", "configs"):
            (self.folder / name).symlink_to(ROOT / name)
        bare = {name: None for name in environment() if name.startswith(("OMPI_", "PRTE_"))}
        block = block.replace(" --run.output", " --run.rounds=1 --run.output")
        done = subprocess.run(["bash", "-ec", block], cwd=self.folder, env=environment(**bare), capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(self.folder / "results/four.h5") as file:
            self.assertEqual(file.attrs["status"], b"complete")
            self.assertEqual(len(file["hostnames"]), 4)


if __name__ == "__main__":
    main()
