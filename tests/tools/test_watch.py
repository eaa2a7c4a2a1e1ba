"""Tests of watch.py on files that a process of their own writes, kills, ends or replaces.

All tests of the tools, with the project's Python: python -m unittest discover -s tests/tools
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import numpy as np
from tool_support import TOOLS, Folder, Writer, add_clients, call, write_run

from fedhpc.tools import follower, results, text_chart, watch

PATIENCE = 60.0  # [s] until an expected line; a test that fails takes this long


class Watcher:
    """watch.py as a process of its own, its lines as they come."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, str(TOOLS / "watch.py"), *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = queue.Queue()
        self.seen = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def expect(self, *words):
        """The next line that contains all of the words."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {words} after {self.seen}") from None
            self.seen.append(line)
            if all(word in line for word in words):
                return line

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


class Watch(Folder):
    def watcher(self, *arguments):
        watcher = Watcher(*arguments)
        self.addCleanup(watcher.end)
        return watcher

    def test_lines_of_a_run_until_it_is_complete(self):
        path, writer = self.writer("run.h5", "round", "round", "half", rounds=4, seconds=50.0)
        watcher = self.watcher(path, "--interval", "0.1")
        line = watcher.expect("round 2/4")
        for text in ("loss 0.5000", "global accuracy 75.00 %", "200.0 B", "50.0 s/round", "01:40 left"):
            self.assertIn(text, line)
        writer.tell("round")
        watcher.expect("round 3/4", "00:50 left")
        writer.tell("round", "complete")
        self.assertNotIn("left", watcher.expect("round 4/4", "complete"))
        self.assertEqual(watcher.process.wait(PATIENCE), 0)

    def test_an_interrupted_run_ends_the_view(self):
        for status in ("interrupted", "failed"):
            path, writer = self.writer(f"{status}.h5", "round", rounds=4)
            watcher = self.watcher(path, "--interval", "0.1")
            watcher.expect("round 1/4")
            writer.tell(status)
            watcher.expect("round 1/4", status)
            watcher.expect("fedhpc resume", str(path))
            self.assertEqual(watcher.process.wait(PATIENCE), 1)

    def test_a_file_that_is_not_there_yet(self):
        path = self.folder / "run.h5"
        watcher = self.watcher(path, "--interval", "0.1", "--wait")
        watcher.expect(f"waiting for {path}")
        writer = Writer(path, rounds=4)
        self.addCleanup(writer.end)
        writer.tell("round")
        watcher.expect("round 1/4")

    def test_a_killed_run_and_its_resume(self):
        path, writer = self.writer("run.h5", *["round"] * 3, rounds=9, seconds=0.01)
        watcher = self.watcher(path, "--interval", "0.1")
        watcher.expect("round 3/9")
        writer.tell("kill")
        watcher.expect("round 3/9", "running or killed")
        # As `fedhpc resume` does it: a file under another name takes the place of the old one.
        part, successor = self.writer("run.h5.tmp", "round", "round", rounds=9)
        os.replace(part, path)
        watcher.expect("round 2/9")
        successor.tell("round")
        watcher.expect("round 3/9")
        successor.tell("complete")
        watcher.expect("complete")
        self.assertEqual(watcher.process.wait(PATIENCE), 0)

    def test_an_interrupted_run_that_is_resumed(self):
        path, writer = self.writer("run.h5", "round", rounds=9)
        watcher = self.watcher(path, "--interval", "0.1", "--wait")
        writer.tell("interrupted")
        watcher.expect("round 1/9", "interrupted")
        part, successor = self.writer("run.h5.tmp", "round", "round", rounds=9)
        os.replace(part, path)
        watcher.expect("round 2/9")
        successor.tell("complete")
        self.assertEqual(watcher.process.wait(PATIENCE), 0)

    def test_control_c(self):
        path, _ = self.writer("run.h5", "round")
        watcher = self.watcher(path, "--interval", "0.1")
        watcher.expect("round 1/50")
        watcher.process.send_signal(signal.SIGINT)
        self.assertEqual(watcher.process.wait(PATIENCE), 130)
        self.assertNotIn("Traceback", "\n".join(watcher.seen))

    def test_a_reader_that_has_seen_enough(self):
        path = write_run(self.folder / "run.h5")
        with subprocess.Popen([sys.executable, str(TOOLS / "watch.py"), str(path), "--once"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")

    def test_once(self):
        path, writer = self.writer("run.h5", *["round"] * 8, rounds=16, seconds=2.0)
        code, out, _ = call(watch, path, "--once")
        self.assertEqual(code, 0)
        for text in ("run.h5: running\n", "round 8/16   50 %  2.0 s/round  00:16 left", "wall time 00:16",
                     "traffic 800.0 B (up 800.0 B, down 0.0 B)", "global accuracy [%] by round"):
            self.assertIn(text, out)
        self.assertRegex(out, r"global accuracy +93\.75 % last +93\.75 % best \(round 8\)")
        self.assertRegex(out, r"training loss +0\.125 last +0\.125 best \(round 8\)")
        self.assertNotIn("\x1b", out)
        writer.tell("kill")
        os.utime(path, (time.time() - 90, time.time() - 90))
        self.assertRegex(call(watch, path, "--once")[1], "running or killed, silent for 01:[23]")

    def test_a_diverged_loss_is_not_the_last_number_it_had(self):
        loss = np.where(np.arange(1, 41) == 10, 6.351e20, np.nan)
        path = write_run(self.folder / "run.h5", status="diverged", global_loss=loss)
        add_clients(path, np.zeros((4, 2)), [10, 20, 30, 40])
        self.assertRegex(call(watch, path, "--once")[1], r"test loss +nan last +6.351e\+20 best \(round 10\)")

    def test_the_code_of_a_diverged_run_is_its_own(self):
        for asked, code in (("true", 1), ("false", 0)):
            path = write_run(self.folder / "run.h5", status="diverged", config=f"[run]\nstop_on_divergence = {asked}\n")
            self.assertEqual(call(watch, path)[0], code)

    def test_a_terminal_is_drawn_anew(self):
        run = write_run(self.folder / "run.h5")
        options = type("Options", (), {"run": run, "metric": None, "interval": 0.1, "wait": False, "once": False})
        with unittest.mock.patch("builtins.print") as printed:
            self.assertEqual(watch.watch(options, terminal=True), 0)
        text = printed.call_args.args[0]
        self.assertTrue(text.startswith(watch.CLEAR))
        self.assertIn("run.h5: complete", text)

    def test_the_chart_shows_the_metric_asked_for(self):
        run = write_run(self.folder / "run.h5", density_global=np.linspace(1.0, 0.1, 40))
        out = call(watch, run, "--once", "--metric", "density_global")[1]
        self.assertIn("density global by round", out)

    def test_refusals(self):
        text = self.folder / "text.h5"
        text.write_text("no", encoding="utf-8")
        for arguments, words in (([self.folder / "none.h5"], "--wait waits for it"), ([text], "not an HDF5 file"),
                                 ([text, "--wait"], "not an HDF5 file"), ([self.folder], "a folder"),
                                 ([write_run(self.folder / "run.h5"), "--metric", "no"], "no series no")):
            code, out, error = call(watch, *arguments)
            self.assertEqual((code, out, error.count("\n")), (2, "", 1), arguments)
            self.assertIn(words, error)

    def test_damage_after_the_first_look(self):
        """A file that shrinks is probed again, not read by a reader that would wait for ever."""
        path, writer = self.writer("run.h5", *["round"] * 5)
        following = follower.Follower(path)
        self.assertEqual(len(following.read().rounds), 5)
        writer.tell("kill")
        os.truncate(path, 600)
        probe = follower.way_to_open
        with unittest.mock.patch.object(follower, "way_to_open", lambda path: probe(path, timeout=2.0)):
            with self.assertRaises(results.ResultError):
                following.read()


class Texts(unittest.TestCase):
    def test_durations(self):
        texts = [watch.seconds_text(seconds) for seconds in (0.4, 65, 3725, 100000)]
        self.assertEqual(texts, ["00:00", "01:05", "1:02:05", "1 d 3 h"])

    def test_chart(self):
        lines = text_chart.chart([(1, 0.0), (2, 1.0), (3, 2.0)], width=9, height=3)
        self.assertEqual(lines, ["2.0 |        *", "1.0 |    *", "0.0 |*", "    +---------", "     1       3"])
        self.assertEqual(text_chart.chart([(1, 5.0)]), [])
        flat = text_chart.chart([(1, 5.0), (2, 5.0)], width=4, height=3)
        self.assertEqual(flat[2], "5.00 |*  *")
        many = text_chart.chart([(x, x) for x in range(1000)], width=10, height=4)
        self.assertEqual(sum(line.count("*") for line in many), 10)


if __name__ == "__main__":
    unittest.main()
