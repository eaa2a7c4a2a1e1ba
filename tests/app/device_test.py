"""The program on a device: a stand-in for a GPU on host memory, which FEDHPC_GPU_MODULE names. Where it
says so a rank has no device, or shares it.

    FEDHPC_GPU_MODULE=build/release/tests/libfedhpc_standin.so python3 device_test.py --fedhpc ...
"""

import os
import signal
import time

import h5py
import numpy as np
from app_support import AppCase, contents, fedhpc, finish, is_gone, killed_codes, main, ranks_of, rounds_in, start, wait_until

CONFIG = """[run]
rounds = {rounds}
seed = 4
eval_every = 2
checkpoint_every = 3
progress = {progress}
[data]
name = glyphs
clients = 6
partition = pfedme
[model]
name = dnn
hidden = 30
[topology]
participation = 0.7
[algorithm]
name = ditto
[train]
batch_size = 10
local_epochs = 1
lr = 0.05
block = 4
"""
ON_DEVICE = "--run.device=cuda"


class Device(AppCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        assert os.environ.get("FEDHPC_GPU_MODULE"), "FEDHPC_GPU_MODULE names no stand-in"

    def run_file(self, name, *arguments, rounds=6, progress="none", **how):
        ini = self.ini(CONFIG.format(rounds=rounds, progress=progress), name + ".ini")
        self.last = self.run_ok("run", ini, f"--run.output={name}.h5", *arguments, **how)
        return self.folder / f"{name}.h5"

    def near(self, a, b, tolerance=1e-4):
        with h5py.File(a) as first, h5py.File(b) as second:
            for name in first["model/global"]:
                x, y = first["model/global"][name][...], second["model/global"][name][...]
                self.assertLess(np.linalg.norm(x - y), tolerance * np.linalg.norm(y), name)
            for name in first["rounds"]:
                if name.startswith("bytes_") or name in ("round", "participants"):
                    np.testing.assert_array_equal(first["rounds"][name], second["rounds"][name], name)

    def test_equals_the_host(self):
        host = self.run_file("host")
        there = self.run_file("there", ON_DEVICE)
        self.near(there, host)
        with h5py.File(there) as file, h5py.File(host) as other:
            self.assertEqual((file.attrs["device"].decode(), other.attrs["device"].decode()), ("cuda", "cpu"))
            for name in ("seconds_train", "seconds_aggregate", "seconds_evaluate"):
                self.assertGreater(np.nansum(file["rounds"][name]), 0, name)

    def test_ranks_with_a_device_each_and_on_one(self):
        host = self.run_file("host")
        cards = {"FEDHPC_STANDIN_CARDS": "2"}
        self.near(self.run_file("each", ON_DEVICE, ranks=2, env=cards), host)
        self.assertNotIn("share a GPU", self.last.stderr)
        self.near(self.run_file("one", ON_DEVICE, ranks=2, env={"FEDHPC_STANDIN_SHARE": "1"}), host)
        self.assertRegex(self.last.stderr, "ranks 0 and 1 share a GPU of .*one rank per GPU")

    def test_takes_up_a_run_to_the_bit_and_on_the_host(self):
        whole = self.run_file("whole", ON_DEVICE, rounds=9)
        self.run_file("part", ON_DEVICE, rounds=6)
        changed = ["resume", "part.h5", "--run.rounds=9"]
        self.run_ok(*changed)
        self.assertEqual(contents(self.folder / "part.h5"), contents(whole))
        self.run_file("moved", ON_DEVICE, rounds=6)
        self.run_ok("resume", "moved.h5", "--run.rounds=9", "--run.device=cpu")
        self.near(self.folder / "moved.h5", whole)

    def test_plan_and_start_up_table(self):
        ini = self.ini(CONFIG.format(rounds=2, progress="plain"))
        plan = self.run_ok("plan", ini, ON_DEVICE).stdout
        self.assertRegex(plan, r"memory_per_rank_bytes: \d+")
        self.assertRegex(self.run_ok("run", ini, ON_DEVICE, "--train.block=auto").stdout, "device +cuda")

    def test_a_round_is_one_block_where_it_fits(self):
        ini = self.ini(CONFIG.format(rounds=1, progress="plain"))
        for participation, ranks, width in ((1, 1, 6), (0.7, 1, 4), (1, 2, 3)):
            done = self.run_ok("run", ini, ON_DEVICE, "--train.block=auto", f"--topology.participation={participation}",
                               ranks=ranks, env={"FEDHPC_STANDIN_CARDS": "2"})
            self.assertRegex(done.stdout, rf"(?m)^{ranks} rank.*, blocks of {width} clients$")

    def test_precision(self):
        exact = self.run_file("exact", ON_DEVICE)
        for precision, tolerance in (("tf32", 0.05), ("bf16", 0.2)):
            there = self.run_file(precision, ON_DEVICE, f"--train.precision={precision}")
            on_host = self.run_file(precision + "_host", f"--train.precision={precision}")
            self.near(there, exact, tolerance)
            self.near(there, on_host, tolerance / 10)
            with h5py.File(there) as a, h5py.File(exact) as b:
                self.assertNotEqual(a["model/global/fc1.weight"][...].tobytes(),
                                    b["model/global/fc1.weight"][...].tobytes(), precision)
        ini = self.ini(CONFIG.format(rounds=2, progress="none"))
        refused = fedhpc("run", ini, "--run.dtype=float64", "--train.precision=tf32", cwd=self.folder)
        self.assertEqual(refused.returncode, 2)
        self.assertRegex(refused.stderr, "train.precision.*float32")

    def test_a_killed_rank_ends_the_others(self):
        ini = self.ini(CONFIG.format(rounds=100000, progress="none"))
        process = start("run", ini, "--run.output=run.h5", ON_DEVICE, "--run.collective_timeout=5", ranks=2,
                        cwd=self.folder)
        wait_until(process, lambda: rounds_in(self.folder / "run.h5") > 2)
        ranks = ranks_of(process)
        os.kill(ranks[1], signal.SIGKILL)
        self.assertIn(finish(process).returncode, killed_codes() | {1})
        deadline = time.monotonic() + 30
        while not all(map(is_gone, ranks)) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertTrue(all(map(is_gone, ranks)), "a rank lives on")

    def test_a_job_whose_gpus_lie_idle_is_told(self):
        ini = self.ini(CONFIG.format(rounds=1, progress="none"))
        given = {"CUDA_VISIBLE_DEVICES": "0,3"}
        done = self.run_ok("run", ini, ranks=2, env=given)
        self.assertEqual(done.stderr.count("note: the job has GPUs (CUDA_VISIBLE_DEVICES = 0,3) and trains on the CPU"), 1)
        resumed = self.run_ok("resume", "config.h5", "--run.rounds=2", env=given)
        self.assertIn("note: the job has GPUs", resumed.stderr)
        self.assertIn("note: the job has GPUs", self.run_ok("plan", ini, env=given).stderr)
        without = [(("--run.device=cpu",), given), ((ON_DEVICE,), given),
                   ((), {"CUDA_VISIBLE_DEVICES": ""}), ((), {"CUDA_VISIBLE_DEVICES": None}),
                   ((), {"CUDA_VISIBLE_DEVICES": "-1"}), ((), {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}),
                   ((), {**given, "FEDHPC_GPU_MODULE": "/none/module.so"}), ((), {**given, "FEDHPC_STANDIN_CARDS": "0"})]
        for arguments, environment in without:
            with self.subTest(arguments=arguments, environment=environment):
                self.assertNotIn("GPU", self.run_ok("run", ini, *arguments, env=environment).stderr)

    def test_a_module_that_is_not_there(self):
        ini = self.ini(CONFIG.format(rounds=2, progress="none"))
        refused = fedhpc("run", ini, ON_DEVICE, cwd=self.folder, env={"FEDHPC_GPU_MODULE": "/none/module.so"})
        self.assertEqual(refused.returncode, 2)
        self.assertRegex(refused.stderr, "'run.device' cannot be 'cuda'.*/none/module.so")

    def test_a_run_of_a_device_goes_on_without_one(self):
        ini = self.ini(CONFIG.format(rounds=2, progress="none"))
        self.run_ok("run", ini, ON_DEVICE)
        none = {"FEDHPC_GPU_MODULE": "/none/module.so"}
        refused = fedhpc("resume", "config.h5", "--run.rounds=3", cwd=self.folder, env=none)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("'run.device' cannot be 'cuda'", refused.stderr)
        self.run_ok("resume", "config.h5", "--run.rounds=3", "--run.device=cpu", env=none)


if __name__ == "__main__":
    main()
