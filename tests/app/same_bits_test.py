"""The numbers of short runs are those recorded in same_bits.json, to the last bit.

A change that is meant to keep the numbers shows it here: every method's configs/algorithms/*.ini and two rows of each
paper, with run.reproducible, on 1 and 3 ranks. A change that is meant to alter them records them anew and says why:

    python3 same_bits_test.py --fedhpc build/release/fedhpc --record

Numbers depend on the processor, whose vector instructions LibTorch and BLAS choose by, on LibTorch and on the compiler.
They depend on no MPI, HDF5 or release of the system, so that a test on another of them compares with the same entry. The
record has an entry for each machine it was made on; on others there is nothing to compare, and --record adds one. A
configuration must be recorded on some machine; one that is not on this one is left out here.
"""

import hashlib
import json
import os
import re
import sys
import unittest
from pathlib import Path

from app_support import AppCase, contents, fedhpc, main

SOURCE = Path(os.environ["FEDHPC_SOURCE_DIR"])
RECORD = Path(__file__).with_name("same_bits.json")
SHORT = ["--run.rounds=2", "--run.eval_every=1", "--run.reproducible=true", "--run.checkpoint_every=0",
         "--run.progress=none"]
# Two rows of each paper, with less to do.
PAPERS = {"fedmud/fmnist_noniid1_fedavg": ["--topology.participation=0.02", "--train.local_epochs=1"],
          "fedmud/fmnist_noniid1_fedmud_bkd_aad": ["--topology.participation=0.02", "--train.local_epochs=1"],
          "pfedsop/mnist_dir_fedavg": ["--topology.participation=0.05"],
          "pfedsop/mnist_path_pfedsop": ["--topology.participation=0.05"],
          "sfedhp/mnist_setting1_hierfavg": ["--train.local_steps=3"],
          "sfedhp/mnist_setting2_sfedhp": ["--train.local_steps=3"],
          "simnet/mnist_dir_simnet": [],
          "simnet/mnist_dir_dsgd": [],
          "tdpfed/mnist_even_pfedme": ["--train.local_steps=3"],
          "tdpfed/mnist_pfedme_tdpfed": ["--train.local_steps=3"]}


def machine():
    """What the bits depend on beside the sources."""
    cpu = Path("/proc/cpuinfo").read_text()
    name, flags = (re.search(rf"^{key}\s*: (.*)$", cpu, re.MULTILINE) for key in ("model name", "flags"))
    _commit, torch, *_libraries, compiler = fedhpc("--version").stdout.strip().rstrip(")").split(", ")
    return {"processor": name[1] if name else "unknown", "torch": torch,
            "compiler": re.sub(r" (\d+)\.\S*", r" \1", compiler),  # without its minor version
            "instructions": hashlib.sha256(flags[1].encode()).hexdigest()[:16] if flags else "unknown"}


def digest(path):
    state = hashlib.sha256()
    for name, (shape, dtype, values) in sorted(contents(path).items()):
        if name != "config":
            state.update(f"{name} {shape} {dtype} ".encode() + values)
    return state.hexdigest()[:16]


def configurations():
    """(name, file, overrides) of every run."""
    for file in sorted((SOURCE / "configs/algorithms").glob("*.ini")):
        small = ["--data.samples_per_client=40"] if "\nsamples_per_client" in file.read_text() else []
        yield file.stem, file, small
    data = f"--data.dir={os.environ.get('FEDHPC_DATA')}"
    for name, smaller in PAPERS.items():
        yield name, SOURCE / f"configs/papers/{name}.ini", [data, *smaller]


class SameBits(AppCase):
    def digest_of(self, file, overrides, ranks):
        done = fedhpc("run", file, *SHORT, *overrides, "--run.output=run.h5", "--force", ranks=ranks, cwd=self.folder)
        self.assertEqual(done.returncode, 0, f"{file.name}: {done.stderr}")
        return digest(self.folder / "run.h5")

    def test_every_configuration(self):
        records = json.loads(RECORD.read_text())
        recorded = {name for one in records for name in one["digests"]}
        self.assertEqual([name for name, *_ in configurations() if name not in recorded], [], "nowhere recorded: --record")
        if not os.environ.get("FEDHPC_DATA"):
            self.skipTest("the papers' data are not here")
        here = machine()
        record = next((one for one in records if one["machine"] == here), None)
        if record is None:
            self.skipTest(f"nothing is recorded for {here}")
        for name, file, overrides in configurations():
            if name not in record["digests"]:
                continue
            for ranks in (0, 3):
                with self.subTest(name=name, ranks=ranks):
                    self.assertEqual(self.digest_of(file, overrides, ranks), record["digests"][name])

    def record(self):
        digests = {name: self.digest_of(file, overrides, 0) for name, file, overrides in configurations()}
        others = [one for one in json.loads(RECORD.read_text()) if one["machine"] != machine()]
        RECORD.write_text(json.dumps([*others, {"machine": machine(), "digests": digests}], indent=1) + "\n")


if __name__ == "__main__":
    if "--record" in sys.argv:
        sys.argv[sys.argv.index("--record")] = "SameBits.record"
    main()
