"""Methods in Python through kill -9: what resume goes on with has the bits of a run that nobody has killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import unittest

import fedhpc
from python_support import SOURCE, TINY, InFolder, same_numbers

SHORT = os.environ.get("FEDHPC_TESTS") == "short"
SCRIPT = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
import ditto, fedavg, sfedhp, tdpfed
import fedhpc
fedhpc.run(json.loads(sys.argv[2]), progress=False, force=True)
"""
FOLDERS = [os.fspath(SOURCE / "examples"), os.fspath(SOURCE / "tests" / "python" / "methods")]
METHODS = {"ditto": {}, "fedavg": {}, "tdpfed": {"model.rank": 3},
           "sfedhp": {"topology.edges": 3, "algorithm.edge_rounds": 2, "train.local_steps": 1}}
ROUNDS = 150
sys.path[:0] = FOLDERS
import ditto  # noqa: E402, F401
import fedavg  # noqa: E402, F401
import sfedhp  # noqa: E402, F401
import tdpfed  # noqa: E402, F401


class Killed(InFolder):
    def start(self, ranks, keys):
        launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
        return subprocess.Popen([*launcher, sys.executable, "-c", SCRIPT, json.dumps(FOLDERS), json.dumps(keys)],
                                start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, process, ranks):
        """Kills one rank, which ends the others, once the run has a checkpoint."""
        deadline = time.monotonic() + 60
        while not any(name.startswith("killed.ckpt") and name.endswith(".h5") for name in os.listdir(".")):
            self.assertIsNone(process.poll(), "it ended before it could be killed")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))
        victim = process.pid
        if ranks > 1:
            with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as children:
                victim = random.choice([int(one) for one in children.read().split()])
        os.kill(victim, signal.SIGKILL)
        self.assertNotEqual(process.wait(60), 0)

    def test_goes_on_with_the_same_bits(self):
        for ranks in (2,) if SHORT else (1, 2, 4):
            for name, own in list(METHODS.items())[:1 if SHORT else None]:
                keys = {**TINY, **own, "run.rounds": ROUNDS, "run.eval_every": 50, "run.checkpoint_every": 5}
                with self.subTest(name, ranks=ranks):
                    process = self.start(ranks, {**keys, "algorithm.name": f"{name}_py", "run.output": "killed.h5"})
                    self.kill(process, ranks)
                    resumed = fedhpc.resume("killed.h5", progress=False)  # on one rank, whatever it was begun on
                    self.assertEqual((resumed.status, len(resumed.rounds)), ("complete", ROUNDS))
                    fedhpc.run(keys, progress=False, force=True,
                               **{"algorithm.name": f"{name}_py", "run.output": "straight.h5"})
                    same_numbers(self, "killed.h5", "straight.h5")
                for left in os.listdir("."):
                    os.remove(left)


if __name__ == "__main__":
    unittest.main()
