"""tools/setup.sh where the system's packages are not its own affair: nothing is asked of a package manager."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
# What the script calls besides Debian's programs.
NEEDED = ("bash", "cat", "dirname", "env", "grep", "id", "readlink", "find", "mkdir", "mktemp", "rm", "touch", "uname")


class WithoutPackages(unittest.TestCase):
    """A folder where LibTorch and Python are there already, on a PATH with stand-ins that note who asks for packages."""

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        (self.folder / "tools").mkdir()
        shutil.copy(PROJECT / "tools/setup.sh", self.folder / "tools")
        self.program(".deps/venv/bin/python", "exit 0")
        for name in NEEDED:
            (self.folder / "bin").mkdir(exist_ok=True)
            (self.folder / "bin" / name).symlink_to(shutil.which(name))
        for name in ("sudo", "apt-get"):
            self.program(f"bin/{name}", f'echo "{name} $*" >>"{self.folder}/asked"')

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def set_up(self, *options, **variables):
        done = subprocess.run(["bash", self.folder / "tools/setup.sh", *options], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={"PATH": str(self.folder / "bin"), "FEDHPC_TORCH": "/there", **variables})
        asked = self.folder / "asked"
        return done.returncode, done.stdout, asked.exists() and asked.read_text()

    def check(self, reason, *options, **variables):
        code, said, asked = self.set_up(*options, **variables)
        self.assertEqual((code, asked), (0, False), said)
        self.assertIn(f"setup: {reason}, so modules stand for the system's packages (docs/install.md, ", said)
        self.assertTrue(said.endswith("setup: ready\n"), said)

    def test_a_system_that_is_no_debian(self):
        self.check("no dpkg here")
        self.check("no dpkg here", "--develop", "--no-packages")

    def test_who_wants_none(self):
        self.program("bin/dpkg-query", "exit 1")  # which knows no package
        self.check("--no-packages is given", "--no-packages")
        self.check("FEDHPC_NO_PACKAGES is set", FEDHPC_NO_PACKAGES="1")
        self.check("FEDHPC_NO_PACKAGES is set", "--develop", FEDHPC_NO_PACKAGES="1")

    def test_a_debian_is_asked(self):
        self.program("bin/dpkg-query", "exit 1")
        code, said, asked = self.set_up()
        self.assertEqual(code, 0, said)
        self.assertIn("apt-get", asked)
        self.assertIn("ninja-build", asked)
        self.assertNotIn("modules stand", said)

    def test_a_wheel_half_unpacked_is_fetched_again(self):
        site = self.folder / ".deps/site"
        (site / "nvidia").mkdir(parents=True)
        version = re.search("torch_version=(.*)", (self.folder / "tools/setup.sh").read_text())[1]
        (site / f"torch-{version}.complete").touch()
        self.program("bin/ldconfig", "exit 0")
        for ends, again in (("exit 9", True), ("exit 0", True), ("exit 0", False)):
            library = ".deps/site/nvidia/cu13/lib/libcublas.so.13"
            self.program("bin/unzip", f"mkdir -p {Path(library).parent}; >{library}; {ends}")
            code, said, _ = self.set_up("--cuda", "--no-packages", FEDHPC_TORCH="", CUDA_HOME=str(self.folder / "none"))
            self.assertEqual((code, "fetching nvidia-cublas\n" in said), (int(ends[-1]), again), said)

    def test_the_page_has_that_heading(self):
        self.assertIn("\n## On a cluster with modules\n", (PROJECT / "docs/install.md").read_text())


if __name__ == "__main__":
    unittest.main()
