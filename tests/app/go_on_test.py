"""fedhpc run --go-on: one command that begins a run, goes on with it, or finds it complete; fedhpc show config.

    python3 go_on_test.py --fedhpc build/release/fedhpc [--mpiexec mpirun] [unittest arguments]
"""

import os
import signal
import subprocess

import h5py
import numpy as np
from app_support import (SMALL_RUN, AppCase, contents, edited, environment, fedhpc, finish, main, options, rounds_in, start,
                         wait_until)

RUN = f"[run]\nrounds = 4\ncheckpoint_every = 1\n{SMALL_RUN}"


class Case(AppCase):
    def refused(self, arguments, sentence):
        done = fedhpc(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(sentence, done.stderr)


class GoOn(Case):
    def setUp(self):
        super().setUp()
        self.config = self.ini(RUN, "run.ini")

    def go_on(self, *arguments, **how):
        return self.run_ok("run", "run.ini", "--go-on", *arguments, **how).stdout

    def without_checkpoints(self):
        for path in self.folder.glob("run.ckpt.*"):
            path.unlink()

    def aside(self):
        return sorted(path.name for path in self.folder.glob("*.old*"))

    def interrupted(self, *arguments):
        """Begins a run of many rounds and asks it to stop after some: the number of rounds done."""
        process = start("run", "run.ini", "--run.rounds=5000", *arguments, cwd=self.folder)
        wait_until(process, lambda: rounds_in(self.folder / "run.h5") >= 3)
        os.kill(process.pid, signal.SIGTERM)
        self.assertEqual(finish(process).returncode, 75)
        return rounds_in(self.folder / "run.h5")

    def test_a_run_begins_and_is_found_complete(self):
        for ranks in (0, 2):
            with self.subTest(ranks=ranks):
                first = self.go_on(f"--run.output={ranks}.h5", ranks=ranks)
                self.assertIn("round 4/4", first)
                before = (self.folder / f"{ranks}.h5").stat().st_mtime_ns
                second = self.go_on(f"--run.output={ranks}.h5", ranks=ranks)
                self.assertEqual(second, f"nothing to do: {ranks}.h5 is complete with 4 rounds; for more of them: "
                                         f"fedhpc resume {ranks}.h5 --run.rounds=N\n")
                self.assertEqual((self.folder / f"{ranks}.h5").stat().st_mtime_ns, before)
        self.assertEqual(self.aside(), [])

    def test_a_killed_run_goes_on_with_the_bits_of_one_straight_through(self):
        keys, fast = ["--run.rounds=1500", "--run.reproducible=true"], "--run.checkpoint_every=0"
        self.run_ok("run", "run.ini", *keys, fast, "--run.output=straight.h5")
        process = start("run", "run.ini", "--go-on", *keys, cwd=self.folder)
        wait_until(process, lambda: rounds_in(self.folder / "run.h5") >= 3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertLess(rounds_in(self.folder / "run.h5"), 1500)
        self.assertIn("going on after round ", self.go_on(*keys, fast, "--train.block=2", ranks=2))
        straight, resumed = (contents(self.folder / f"{name}.h5") for name in ("straight", "run"))
        for name in straight:
            if name.startswith(("model/", "rounds/train_loss", "rounds/global")):
                self.assertEqual(resumed[name], straight[name], name)

    def test_a_run_that_ends_at_its_checkpoint_has_personal_models(self):
        keys = ["--algorithm.name=ditto", "--run.save=personal", "--run.reproducible=true"]
        process = start("run", "run.ini", "--run.rounds=5000", *keys, cwd=self.folder)
        wait_until(process, lambda: rounds_in(self.folder / "run.h5") >= 3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        checkpoint = sorted(self.folder.glob("run.ckpt.*.h5"))[0]
        done = int(checkpoint.name.split(".")[2])
        self.run_ok("resume", checkpoint, f"--run.rounds={done}", "--run.output=end.h5")
        self.run_ok("run", "run.ini", f"--run.rounds={done}", *keys, "--run.output=straight.h5")
        straight, ended = (contents(self.folder / f"{name}.h5") for name in ("straight", "end"))
        models = [name for name in straight if name.startswith("model/")]
        self.assertTrue(any(name.startswith("model/personal/") for name in models))
        for name in models:
            self.assertEqual(ended[name], straight[name], name)

    def test_what_a_run_saves_is_a_set(self):
        self.run_ok("run", "run.ini", "--run.save=init,partition")
        self.run_ok("resume", "run.h5", "--run.rounds=5", "--run.save=partition,init")

    def test_an_interrupted_run_goes_on(self):
        done = self.interrupted("--go-on")
        self.assertIn(f"going on after round {done} from run.ckpt.{done}.h5", self.go_on(f"--run.rounds={done + 2}"))
        self.assertEqual(rounds_in(self.folder / "run.h5"), done + 2)

    def test_its_output_is_given_on_the_command_line(self):
        self.go_on("--run.output=out.h5")
        done = self.run_ok("run", "run.ini", "--go-on", "--run.output=out.h5", "--run.rounds=5")
        self.assertEqual((rounds_in(self.folder / "out.h5"), "more than once" in done.stderr), (5, False))

    def test_a_run_whose_checkpoints_are_damaged_tells_how_it_begins_anew(self):
        self.interrupted("--go-on")
        for path in self.folder.glob("run.ckpt.*"):
            damaged = bytearray(path.read_bytes())
            damaged[len(damaged) // 2] ^= 4
            path.write_bytes(damaged)
        self.refused(["run", "run.ini", "--go-on", "--run.rounds=5"],
                     "no other checkpoint of 'run.h5' is left: without that one `fedhpc run` begins anew")
        self.without_checkpoints()
        self.go_on("--run.rounds=5")
        self.assertEqual((rounds_in(self.folder / "run.h5"), self.aside()), (5, ["run.old1.h5"]))

    def test_more_rounds_are_added(self):
        self.go_on()
        self.assertIn("going on after round 4", self.go_on("--run.rounds=6"))
        self.assertEqual((rounds_in(self.folder / "run.h5"), self.aside()), (6, []))

    def test_it_does_not_end_after_a_round_that_was_not_evaluated(self):
        done = self.interrupted("--run.eval_every=5000")
        told = f"run.rounds = {done} would end the run after a round that was not evaluated (checkpoint " \
               f"'run.ckpt.{done}.h5'); allowed: at least {done + 1}"
        self.refused(["run", "run.ini", "--go-on", f"--run.rounds={done}", "--run.eval_every=5000"], told)
        self.refused(["resume", "run.h5", f"--run.rounds={done}"], told)
        self.run_ok("resume", "run.h5", f"--run.rounds={done + 1}")
        with h5py.File(self.folder / "run.h5") as file:
            self.assertEqual(file["clients/evaluated_rounds"][:].tolist(), [done + 1])

    def test_a_cosine_keeps_its_period(self):
        keys = ["--train.lr_schedule=cosine", "--train.lr_final=0.1"]
        self.go_on(*keys)
        for rounds, more in ((6, []), (7, ["--train.lr_period=auto"])):
            self.assertIn(f"round {rounds}/{rounds}", self.go_on(*keys, *more, f"--run.rounds={rounds}"))
        self.run_ok("run", "run.ini", *keys, "--train.lr_period=4", "--run.rounds=7", "--run.output=straight.h5")
        straight, resumed = (contents(self.folder / f"{name}.h5") for name in ("straight", "run"))
        self.assertEqual(resumed["rounds/train_loss"], straight["rounds/train_loss"])
        self.ini(RUN.replace("[train]", "[train]\nlr_period = 5"), "given.ini")
        self.run_ok("run", "given.ini", "--go-on", *keys, "--train.lr_period=auto", "--run.rounds=8", "--run.output=run.h5")
        self.refused(["run", "run.ini", "--go-on", *keys, "--run.rounds=9", "--train.lr_period=7"],
                     "train.lr_period = 7 (was 4)")
        for rounds in (8, 5):  # the second time without a checkpoint
            self.assertIn("nothing to do: run.h5 is complete with 8 rounds", self.go_on(*keys, f"--run.rounds={rounds}"))
            self.without_checkpoints()

    def test_fewer_rounds_than_there_are_leave_it_as_it_is(self):
        self.go_on("--run.rounds=6")
        for checkpoint in (True, False):
            self.assertIn("nothing to do: run.h5 is complete with 6 rounds", self.go_on())
            self.without_checkpoints()
        self.assertEqual(self.aside(), [])

    def test_a_run_that_diverged_is_over(self):
        keys = ["--train.lr=1e9", "--run.rounds=6"]
        self.go_on(*keys)
        self.assertIn("nothing to do: run.h5 has diverged after 6 rounds", self.go_on(*keys))
        keys = ["--train.lr=1e9", "--run.rounds=40", "--run.stop_on_divergence=true", "--run.output=s.h5"]
        for expected in ("", "nothing to do: s.h5 has diverged after "):
            done = fedhpc("run", "run.ini", "--go-on", *keys, cwd=self.folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn(expected, done.stdout)
        self.assertEqual(self.aside(), [])
        done = fedhpc("resume", "run.h5", cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "nothing to do: run.h5 has diverged after 6 rounds"))
        done = fedhpc("resume", "run.h5", "--run.stop_on_divergence=true", cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stdout)

    def test_another_build_that_goes_on_is_named_and_kept(self):
        self.go_on()
        with edited(self.folder / "run.ckpt.4.h5") as file:
            here = file.attrs["git_commit"].decode()
            file.attrs["git_commit"] = np.bytes_("0123456789ab")
        self.assertIn("another build of fedhpc (commit 0123456789ab, this is " + here,
                      self.run_ok("resume", "run.h5", "--run.rounds=5").stderr)
        with h5py.File(self.folder / "run.h5") as file:
            self.assertEqual(file.attrs["git_commit"].decode(), f"0123456789ab + {here}")
        self.assertEqual(self.run_ok("resume", "run.h5", "--run.rounds=6").stderr, "")

    def test_another_configuration_beside_a_checkpoint_is_refused(self):
        self.go_on()
        self.refused(["run", "run.ini", "--go-on", "--train.lr=0.5"],
                     "configuration 'run.ini' is not that of checkpoint 'run.ckpt.4.h5': train.lr = 0.5 (was ")

    def test_a_complete_run_whose_checkpoint_is_gone_is_left_as_it_is(self):
        self.go_on()
        self.without_checkpoints()
        for keys in ([], ["--run.eval_every=2", "--run.log_level=warning"]):
            for ranks in (0, 2):
                self.assertIn("nothing to do: run.h5 is complete", self.go_on(*keys, ranks=ranks))
        self.assertEqual(self.go_on("--run.progress=none"), "")
        self.assertEqual(self.aside(), [])

    def test_of_another_configuration_it_is_set_aside(self):
        for number, change in enumerate(("--run.rounds=5", "--train.lr=0.2", "--train.momentum=0.5", "--model.name=mlr",
                                         "--run.seed=2", "--algorithm.name=fedprox"), 1):
            self.run_ok("run", "run.ini", "--force")
            self.without_checkpoints()
            self.assertIn(f"the earlier result is now run.old{number}.h5", self.go_on(change), change)
            self.without_checkpoints()
            self.assertIn("nothing to do", self.go_on(change), change)

    def test_of_other_data_it_is_set_aside(self):
        (self.folder / "a #1").mkdir()
        rows = ["x,y,label"] + [f"{n % 7},{n % 5},{n % 2}" for n in range(40)]
        self.ini('[run]\nrounds = 2\n[data]\nname = csv\nfile = "a #1/d.csv"\nlabel_column = label\npartition = iid\n'
                 "clients = 2\n[model]\nname = mlr\n", "run.ini")
        for text, expected in ((rows, "round 2/2"), (rows, "nothing to do"), ([*rows, "1,2,0"], "is now run.old1.h5")):
            (self.folder / "a #1/d.csv").write_text("\n".join(text) + "\n")
            self.assertIn(expected, self.go_on())
            if expected != "round 2/2":
                self.without_checkpoints()

    def test_what_is_not_complete_begins_anew(self):
        for status in ("interrupted", "failed", "running"):
            self.run_ok("run", "run.ini", "--force")
            self.without_checkpoints()
            with h5py.File(self.folder / "run.h5", "r+") as file:
                file.attrs["status"] = status
            self.assertIn("round 4/4", self.go_on(), status)
            self.without_checkpoints()
        self.assertEqual(len(self.aside()), 3)
        os.truncate(self.folder / "run.h5", (self.folder / "run.h5").stat().st_size - 9)
        self.assertIn("round 4/4", self.go_on())

    def test_a_pipe_is_read_once(self):
        def piped(command, *arguments):
            done = subprocess.run([options.fedhpc, command, *arguments], input=RUN, capture_output=True, text=True, check=False,
                                  cwd=self.folder, env=environment())
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        for expected in ("round 4/4", "nothing to do: piped.h5 is complete with 4 rounds"):
            self.assertIn(expected, piped("run", "/dev/stdin", "--go-on", "--run.output=piped.h5"))
        self.assertIn("going on after round 4", piped("resume", "piped.h5", "/dev/stdin", "--run.rounds=5"))
        with h5py.File(self.folder / "piped.h5") as file:
            self.assertIn("hidden = 8\n", file.attrs["config"].decode())

    def test_it_does_not_go_with_force(self):
        self.refused(["run", "run.ini", "--go-on", "--force"], "--force replaces a result and --go-on keeps it; give one")


class ShowConfig(Case):
    def shown(self, *arguments, **how):
        return self.run_ok("show", "config", *arguments, **how).stdout

    def test_is_what_the_result_file_has(self):
        self.ini(RUN, "run.ini")
        text = self.shown("run.ini", "--train.lr=0.25", ranks=2)
        self.assertEqual(text.count("[run]\n"), 1, "one rank tells it")
        self.run_ok("run", "run.ini", "--train.lr=0.25")
        with h5py.File(self.folder / "run.h5") as file:
            self.assertEqual(text, file.attrs["config"].decode())

    def test_one_key(self):
        self.ini(RUN, "run.ini")
        self.assertEqual(self.shown("run.ini", "train.lr", "--train.lr=0.250"), "0.25\n")
        self.assertEqual(self.shown("run.ini", "run.rounds"), "4\n")
        elsewhere = ["--run.device=cuda", "--data.name=csv", "--data.file=none.csv", "--data.partition=iid"]
        self.assertEqual(self.shown("run.ini", "run.output", *elsewhere), "run.h5\n")
        self.refused(["show", "config", "run.ini", "train.lrr"],
                     "this configuration has no key 'train.lrr'; did you mean 'train.lr'?")
        for key, reason in (("data.alpha", "has no effect"), ("train.lr_every", "has no effect"),
                            ("model.init_file", "is not set")):
            self.refused(["show", "config", "run.ini", key], f"key '{key}' {reason} in this configuration")
        self.refused(["show", "config"], "needs a configuration")

    def test_where_the_result_goes(self):
        def at(name, text=RUN):
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return name

        at("bases/far.ini", 'base = "../quoted.ini"\n[run]\nseed = 1\n')
        at("quoted.ini", '[run] # x\noutput = "a #3 \\"b\\" \\\\.h5" # y\n')
        for arguments, expected in (((at("run.ini"),), "run.h5"), ((at("a/run.ini"),), "run.h5"),
                                    ((at("other.ini", "[run]\nseed=1\n output = some where/x.h5 # y\n"),), "some where/x.h5"),
                                    ((at("based.ini", "# x\nbase=bases/far.ini # y\n"),), 'a #3 "b" \\.h5'),
                                    (("other.ini", "--run.output=b/c.h5", "--run.seed=1"), "b/c.h5"),
                                    (("run.ini", "--run.output=plain"), "plain"),
                                    ((at("a.b/run.cfg"),), "run.h5"), ((at("run.a.cfg"),), "run.a.h5"), ((at("run"),), "run.h5"),
                                    ((at("run.h5.ini"),), "run.h5.h5"), ((at("a/.hidden"),), ".hidden.h5"),
                                    ((at(".hidden.ini"),), ".hidden.h5")):
            with self.subTest(arguments):
                self.assertEqual(self.shown(arguments[0], "run.output", *arguments[1:]), expected + "\n")


if __name__ == "__main__":
    main()
