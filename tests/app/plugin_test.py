"""Plug-ins: a method of one's own on any number of ranks, killed and resumed, listed and explained; what is refused.

    python3 plugin_test.py --fedhpc build/release/fedhpc [--mpiexec mpirun] [unittest arguments]

The plug-ins lie in the folder that FEDHPC_TEST_PLUGINS names: the example, and one that does what a variable says.
"""

import os
import re
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

import h5py
from app_support import (SMALL_RUN, AppCase, apart, contents, environment, fedhpc, main, options, ranks_of,
                         rounds_in, start, wait_until)

PLUGINS = Path(os.environ.get("FEDHPC_TEST_PLUGINS", "build/release/tests")).resolve()
MOMENTUM, KINDS = PLUGINS / "libserver_momentum.so", PLUGINS / "libplugin_of_all_kinds.so"
MARK = b"@(#)fedhpc plug-in for: "
BARE = """const char stamp[] = "%s";
void nowhere(void);
void %s(void) { %s }
"""
CONFIG = SMALL_RUN + """[run]
rounds = 6
progress = none
reproducible = true
plugin = {plugin}
[algorithm]
name = server_momentum
"""


def built_for(path):
    """What a plug-in was built for."""
    return re.search(re.escape(MARK) + rb"([ -~]+)\0", path.read_bytes())[1].decode()


class Plugins(AppCase):
    def setUp(self):
        super().setUp()
        self.config = self.ini(CONFIG.format(plugin=MOMENTUM), "run.ini")

    def test_a_method_may_have_the_name_of_one_of_fedhpcs(self):
        """Its own functions are called, also where it began as a copy."""
        config = CONFIG.format(plugin=PLUGINS / "libplugin_like_fedavg.so").replace("server_momentum", "like_fedavg")
        run = ["run", self.ini(config, "like.ini"), "--run.save=init", "--run.output=run.h5"]
        self.run_ok(*run)
        with h5py.File(self.folder / "run.h5") as file:
            for name, first in file["model/init/global"].items():
                self.assertTrue((file[f"model/global/{name}"][...] == first[...]).all(), name)
        promised = fedhpc(*run, "--force", cwd=self.folder, env={"FEDHPC_TEST_PROMISE": "1"})
        self.assertEqual(promised.returncode, 1, promised.stderr)
        self.assertIn("like_fedavg tells of models of clients, and its evaluate() hands over none", promised.stderr)

    def refused(self, arguments, *words, ranks=0, env=None):
        done = fedhpc(*arguments, cwd=self.folder, ranks=ranks, env=env)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        said = [line for line in done.stderr.splitlines() if line.startswith("fedhpc:")]
        self.assertEqual(len(said), 1, done.stderr)
        for word in words:
            self.assertIn(word, said[0])
        self.assertEqual(list(self.folder.glob("*.h5")), [])
        return said[0]

    def refused_plugin(self, plugin, *words, **how):
        return self.refused(["run", "run.ini", f"--run.plugin={plugin}"],
                            "command line: key 'run.plugin': plug-in '", *words, **how)

    def bare(self, name, stamp, function="fedhpc_plugin", body=""):
        """A library of a few lines of C."""
        source = self.folder / f"{name}.c"
        source.write_text(BARE % (stamp, function, body))
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", self.folder / f"{name}.so"], check=True)
        return f"{name}.so"

    def test_the_same_bits_on_any_number_of_ranks(self):
        self.run_ok("run", "run.ini", "--run.output=one.h5")
        one = contents(self.folder / "one.h5")
        for ranks in (2, 4):
            self.run_ok("run", "run.ini", f"--run.output={ranks}.h5", ranks=ranks)
            several = contents(self.folder / f"{ranks}.h5")
            names = [name for name in one if name.startswith(("model/", "rounds/"))]
            self.assertGreater(len(names), 10)
            for name in names:
                self.assertEqual(several[name], one[name], (ranks, name))

    def test_without_momentum_it_is_federated_averaging(self):
        self.run_ok("run", "run.ini", "--algorithm.momentum=0", "--run.output=zero.h5")
        self.run_ok("run", "run.ini", "--run.output=some.h5")
        self.run_ok("run", "run.ini", "--algorithm.name=fedavg", "--run.output=fedavg.h5")
        weights = {name: contents(self.folder / f"{name}.h5")["model/global/fc1.weight"]
                   for name in ("zero", "some", "fedavg")}
        self.assertEqual(weights["zero"], weights["fedavg"])
        self.assertNotEqual(weights["some"], weights["fedavg"])

    def test_a_killed_run_is_resumed_with_its_plugin(self):
        keys = ["--run.rounds=400", "--run.checkpoint_every=1"]
        self.run_ok("run", "run.ini", *keys, "--run.output=straight.h5", ranks=2)
        shutil.copy(MOMENTUM, self.folder / "libmine.so")
        process = start("run", "run.ini", *keys, "--run.plugin=libmine.so", ranks=2, cwd=self.folder)
        wait_until(process, lambda: rounds_in(self.folder / "run.h5") >= 3)
        for pid in ranks_of(process):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
        done = rounds_in(self.folder / "run.h5")
        self.assertTrue(3 <= done < 400, done)
        # The plug-in was found beside the configuration; from elsewhere it is the same.
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (self.folder / "libmine.so").rename(elsewhere / "libmine.so")
        gone = fedhpc("resume", self.folder / "run.h5", cwd=self.folder)
        self.assertEqual(gone.returncode, 2, gone.stderr)
        self.assertIn(f"'{self.folder.resolve()}/libmine.so' cannot be read: No such file", gone.stderr)
        self.run_ok("resume", "../run.h5", "--run.plugin=libmine.so", cwd=elsewhere)
        straight, resumed = (contents(self.folder / f"{name}.h5") for name in ("straight", "run"))
        self.assertEqual(straight.keys(), resumed.keys())
        for name in straight:
            if name.startswith(("model/", "rounds/train_loss", "rounds/global")):
                self.assertEqual(resumed[name], straight[name], name)
        with h5py.File(self.folder / "run.h5") as file:
            self.assertIn(f"plugin = {elsewhere.resolve()}/libmine.so", file.attrs["config"].decode())
            self.assertRegex(file.attrs["code_digest"].decode(), "^[0-9a-f]{16}$")
        # The configuration as it is now may name it too; the command line need not.
        self.ini(CONFIG.format(plugin="elsewhere/libmine.so"), "again.ini")
        same = self.run_ok("resume", "run.h5", "again.ini", *keys[1:], "--run.rounds=401")
        self.assertNotIn("other code", same.stderr)
        with open(elsewhere / "libmine.so", "ab") as library:
            library.write(b"another build")
        other = self.run_ok("resume", "run.h5", "again.ini", *keys[1:], "--run.rounds=402")
        self.assertIn("was made with other code of algorithm.name = ", other.stderr)

    def test_beside_the_file_that_names_it(self):
        (self.folder / "bases").mkdir()
        shutil.copy(MOMENTUM, self.folder / "bases/libmine.so")
        self.ini(CONFIG.format(plugin="libmine.so"), "bases/table.ini")
        self.ini("base = bases/table.ini\n", "row.ini")
        self.run_ok("run", "row.ini")
        self.run_ok("plan", "row.ini", ranks=2)
        self.run_ok("run", "row.ini", "--run.plugin=bases/libmine.so,./bases/libmine.so", "--run.output=twice.h5")
        (self.folder / "run.h5").unlink(missing_ok=True)
        for path in self.folder.glob("*.h5"):
            path.unlink()
        shutil.copy(MOMENTUM, self.folder / "libmine.so")
        self.refused(["run", "row.ini"], "bases/table.ini:", "key 'run.plugin'", "'libmine.so' may be",
                     "give the whole path")
        self.refused(["run", "row.ini", "--run.plugin=libother.so"], "key 'run.plugin': no such file as",
                     f"looked for {self.folder.resolve()}/libother.so")

    def test_listed_and_explained(self):
        plugin = f"--run.plugin={MOMENTUM}"
        listed = self.run_ok("list", "algorithms", plugin).stdout
        self.assertIn("server_momentum\tFedAvg with server momentum (Hsu et al., 2019)\n", listed)
        self.assertIn("server_momentum", self.run_ok("list", plugin).stdout)
        self.assertNotIn("server_momentum", self.run_ok("list").stdout)
        told = self.run_ok("help", "server_momentum", plugin).stdout
        self.assertIn("server_momentum (algorithm; choose it with algorithm.name=server_momentum)", told)
        self.assertIn("algorithm.momentum\n", told)
        self.assertIn("algorithm.momentum\n", self.run_ok("help", plugin, "keys").stdout)
        self.assertIn("run.plugin\n", self.run_ok("help", "run.plugin").stdout)
        self.refused(["list", "--run.rounds=3"], "fedhpc list has no use for '--run.rounds=3'", "--run.plugin")
        self.refused(["help", "server_momentum"], "no help on 'server_momentum'")
        self.refused(["run", "run.ini", "--algorithm.momentun=0.5"], "did you mean 'algorithm.momentum'")

    def test_all_kinds(self):
        env = {"FEDHPC_TEST_PLUGIN": "all"}
        both = f"--run.plugin={MOMENTUM},{KINDS}"
        listed = self.run_ok("list", both, env=env).stdout
        for name in ("server_momentum", "test_model", "test_data", "test_partition", "test_codec", "test_factors"):
            self.assertIn(name, listed)
        new = ["--data.name=test_data", "--data.partition=test_partition", "--model.name=test_model",
               "--algorithm.codec=test_codec"]
        old = ["--data.name=synthetic", "--data.partition=iid", "--model.name=dnn", "--algorithm.codec=fp16"]
        self.run_ok("run", "run.ini", both, *new, "--run.output=new.h5", env=env)
        self.run_ok("run", "run.ini", both, *old, "--run.output=old.h5", env=env)
        self.assertEqual(contents(self.folder / "new.h5"), contents(self.folder / "old.h5"))

    def test_an_added_factorisation_may_read_all_keys_of_factorisations(self):
        keys = {"conv_view": "raw", "block_layout": "grid", "lora_alpha": "2", "rank_bound": "full"}
        text = self.run_ok("show", "config", "run.ini", f"--run.plugin={MOMENTUM},{KINDS}", "--algorithm.name=test_averaging",
                           "--data.name=glyphs", "--model.name=cnn2", *(f"--model.{key}={keys[key]}" for key in keys),
                           env={"FEDHPC_TEST_PLUGIN": "all"}).stdout
        for key, value in keys.items():
            self.assertIn(f"\n{key} = {value}\n", text)

    def test_another_version_is_refused_before_it_is_loaded(self):
        env = {"FEDHPC_TEST_PLUGIN_WITNESS": str(self.folder / "witness")}
        self.run_ok("list", f"--run.plugin={KINDS}", env=env)
        self.assertTrue((self.folder / "witness").exists())
        (self.folder / "witness").unlink()
        ours = built_for(KINDS)
        theirs = re.sub(r"\(headers [0-9a-f]{4}", "(headers beef", ours)
        self.assertNotEqual(ours, theirs)
        (self.folder / "libold.so").write_bytes(KINDS.read_bytes().replace(ours.encode(), theirs.encode()))
        for ranks in (0, 2):
            self.refused_plugin("libold.so", f"was built for {theirs}, and this is {ours}; build it anew",
                                env=env, ranks=ranks)
        self.assertFalse((self.folder / "witness").exists())

    def test_refused(self):
        ours = built_for(MOMENTUM)
        stamp = MARK.decode() + ours
        self.ini("[run]\n", "text.so")
        (self.folder / "folder.so").mkdir()
        self.ini("print('hello')\n", "mine.py")
        whole = MOMENTUM.read_bytes()
        (self.folder / "short.so").write_bytes(whole[:whole.index(stamp.encode()) + len(stamp) + 1])
        shutil.copy(MOMENTUM, self.folder / "copy.so")
        for plugin, words in [
                ("text.so", ["/text.so' is no shared library; docs/how-to"]),
                ("folder.so", ["/folder.so' is a folder"]),
                ("/dev/null", ["'/dev/null' is no file"]),
                ("/proc/self/mem", ["/mem' cannot be read: Input/output error"]),
                ("/nowhere/mine.so", ["'/nowhere/mine.so' cannot be read: No such file"]),
                ("mine.py", ["/mine.py' is Python", "'python3 -m fedhpc'"]),
                (Path(options.fedhpc).with_name("libfedhpc.so"), ["is a library, but no plug-in"]),
                ("short.so", ["/short.so' is cut off; copy or build it again"]),
                (self.bare("lacks", stamp, body="nowhere();"),
                 ["/lacks.so' cannot be loaded: ", "undefined symbol: nowhere"]),
                (self.bare("empty", stamp, function="other"), ["/empty.so' has no function fedhpc_plugin"]),
                (f"copy.so,{MOMENTUM}",
                 ["adds the algorithm 'server_momentum', which plug-in '", "/copy.so' has added"])]:
            with self.subTest(plugin=str(plugin)):
                self.refused_plugin(plugin, *words)
        self.refused_plugin("text.so", "is no shared library", ranks=2)

    @unittest.skipIf(os.geteuid() == 0, "root may read anything")
    def test_without_permission(self):
        shutil.copy(MOMENTUM, self.folder / "libmine.so")
        (self.folder / "libmine.so").chmod(0)
        self.refused_plugin("libmine.so", "cannot be read: Permission denied")

    def test_what_a_plugin_does_wrong(self):
        for wrong, words in {
                "own name": ["adds the model 'mlr', which is fedhpc's own; take another name"],
                "no word": ["adds the model 'a model', whose name has to be a word"],
                "no sentence": ["adds the model 'a_model', whose sentence"],
                "twice": ["adds the model 'a_model', twice"],
                "exception": ["failed when it was loaded: no such luck"],
                "empty": ["adds the partitioner 'a_partitioner', whose function is empty"],
                "number": ["failed when it was loaded: a value of type int was thrown"]}.items():
            with self.subTest(wrong=wrong):
                self.refused_plugin(KINDS, *words, env={"FEDHPC_TEST_PLUGIN": wrong})
        self.refused_plugin(KINDS, "no such luck", env={"FEDHPC_TEST_PLUGIN": "exception"}, ranks=2)

    def test_what_makes_nothing(self):
        for key, name, kind in (("data.name", "null_data", "data set"), ("model.name", "null_model", "model"),
                                ("algorithm.codec", "null_codec", "codec")):
            with self.subTest(kind=kind):
                self.refused(["run", "run.ini", f"--run.plugin={MOMENTUM},{KINDS}", f"--{key}={name}"],
                             f"plug-in '{KINDS}': the {kind} '{name}' was not made: its function gave null")

    def test_a_method_that_cannot_be_made(self):
        for wrong, words in (("constructor", "no such luck"),
                             ("constructor number", "a value of type int was thrown, which is no std::exception")):
            for command in (["run", "run.ini"], ["list"]):
                with self.subTest(wrong=wrong, command=command[0]):
                    self.refused([*command, f"--run.plugin={MOMENTUM},{KINDS}"],
                                 f"plug-in '{KINDS}': the algorithm 'fails' cannot be made: {words}",
                                 env={"FEDHPC_TEST_PLUGIN": wrong})

    def test_traits_that_fail_name_their_method(self):
        self.refused(["run", "run.ini", f"--run.plugin={MOMENTUM},{KINDS}"],
                     "method 'fails': traits() failed: no such luck", env={"FEDHPC_TEST_PLUGIN": "traits"})

    def test_keys_act_by_the_traits_that_the_methods_own_keys_give(self):
        both = f"--run.plugin={MOMENTUM},{KINDS}"
        edges = ["--algorithm.name=fails", "--topology.edges=2"]
        self.refused(["show", "config", "run.ini", both, *edges],
                     "key 'topology.edges' = '2' has no effect with algorithm.name")
        done = fedhpc("show", "config", "run.ini", both, *edges, "--algorithm.with_edges=true", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("edges = 2", done.stdout)

    def test_whatever_a_method_throws_says_where(self):
        both = f"--run.plugin={MOMENTUM},{KINDS}"
        for wrong, ranks, words in (
                ("initialise number", 0, ["fails", "a value of type int was thrown, which is no std::exception"]),
                ("block", 0, ["fails, training client ", " in round 2: a value of type char const* was thrown"]),
                ("block", 2, ["fails, training client ", " in round 2: a value of type char const* was thrown"]),
                ("note", 0, ["fails, in round 2: a value is noted of the series 'nothing', which the method"])):
            with self.subTest(wrong=wrong, ranks=ranks):
                done = fedhpc("run", "run.ini", both, "--algorithm.name=fails", ranks=ranks,
                              cwd=self.folder, env={"FEDHPC_TEST_PLUGIN": wrong})
                self.assertEqual(done.returncode, 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_data_that_are_not_what_they_say(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                both = f"--run.plugin={MOMENTUM},{KINDS}"
                self.refused(["run", "run.ini", both, "--data.name=wrong_label"],
                             "data set 'wrong_label': sample 0 has the label 3, expected 0 to 2", ranks=ranks)
                self.refused(["run", "run.ini", both, "--data.partition=wrong_samples"],
                             "data.partition = wrong_samples, list 'train_samples': found sample ", ranks=ranks)

    def test_on_one_host_only(self):
        for name in ("here", "there"):
            (self.folder / name).mkdir()
            self.ini(CONFIG.format(plugin="libmine.so"), f"{name}/run.ini")
        shutil.copy(MOMENTUM, self.folder / "here/libmine.so")
        command = apart(options.mpiexec, options.fedhpc, ["run", "here/run.ini"], ["run", "there/run.ini"])
        done = subprocess.run(command, cwd=self.folder, env=environment(), capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no such file as 'libmine.so'; looked for", done.stderr)
        self.assertEqual(done.stderr.count("fedhpc: error"), 1, done.stderr)


if __name__ == "__main__":
    main()
