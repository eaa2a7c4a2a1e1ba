"""The recipes of packaging/: of this version, in their languages, and with options and files that there are."""

import ast
import os
import re
import shutil
import subprocess
import tempfile
import types
import unittest
from pathlib import Path

from tool_support import Folder, call

from fedhpc.tools import docs_site

PROJECT = Path(__file__).resolve().parents[2]
SPACK = PROJECT / "packaging/spack/package.py"
EASYBUILD = PROJECT / "packaging/easybuild"
VERSION = (PROJECT / "VERSION").read_text().split()[0]


def options_of_cmake():
    text = "".join(path.read_text() for path in (PROJECT / "CMakeLists.txt", *(PROJECT / "cmake").glob("*.cmake")))
    return set(re.findall(r"(?:option|set)\((FEDHPC_[A-Z_]+) ", text))


class Site(Folder):
    """The folder of what the documentation site is made of."""

    def test_removes_nothing_but_its_own(self):
        site = self.folder / "site"
        self.assertEqual(call(docs_site, site)[0], 0)
        (site / "docs" / "gone.md").write_text("no page any more")
        self.assertEqual(call(docs_site, site)[0], 0)
        self.assertEqual(((site / "docs" / "gone.md").exists(), (site / "README.md").exists()), (False, True))
        kept = self.folder / "other" / "mine.txt"
        kept.parent.mkdir()
        kept.write_text("mine")
        (site / ".git").touch()
        for folder in (kept.parent, site, self.folder):
            code, _, error = call(docs_site, folder)
            self.assertEqual((code, error), (2, f"docs_site: {folder} holds other files, which would be removed; "
                                                "give a new folder\n"))
        self.assertTrue(kept.exists())
        self.assertTrue(all(map(docs_site.holds_other_files, (PROJECT, PROJECT.parent))))


@unittest.skipUnless(shutil.which("cmake") and shutil.which("git"), "no cmake or no git")
class Commit(unittest.TestCase):
    """What a build says of the commit that it is of."""

    def commit_of(self, sources):
        subprocess.run(["cmake", f"-DSOURCE_DIR={sources}", f"-DOUTPUT={self.folder}/o",
                        f"-DVERSION_HEADER={self.folder}/v", "-P", PROJECT / "cmake/write_build_info.cmake"], check=True)
        return re.search(r'_COMMIT "(.*)"', (self.folder / "o").read_text())[1]

    def git(self, *words):
        return subprocess.run(["git", "-C", self.sources, "-c", "user.name=n", "-c", "user.email=e@e", *words],
                              check=True, capture_output=True, text=True).stdout.strip()

    def test_that_of_the_sources_and_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder)
            self.sources = self.folder / "sources"
            inside = self.sources / "inside another project"
            inside.mkdir(parents=True)
            self.assertEqual(self.commit_of(self.sources), "unknown")
            self.git("init", "-q")
            self.git("commit", "-q", "--allow-empty", "-m", "m")
            self.assertEqual(self.commit_of(self.sources), self.git("rev-parse", "--short=12", "HEAD"))
            link = self.folder / "link"
            link.symlink_to(self.sources)
            self.assertEqual(self.commit_of(link), self.commit_of(self.sources))
            self.assertEqual(self.commit_of(inside), "unknown")


class Spack(unittest.TestCase):
    def setUp(self):
        self.text = SPACK.read_text()
        package, = (node for node in ast.parse(self.text).body if isinstance(node, ast.ClassDef))
        self.package = package
        self.bases = [base.id for base in package.bases]
        self.calls = [(call.func.id, call.args[0].value) for call in ast.walk(package)
                      if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args
                      and isinstance(call.args[0], ast.Constant)]

    def test_what_it_declares(self):
        self.assertEqual(self.bases, ["CMakePackage", "CudaPackage"])
        self.assertIn(("version", VERSION), self.calls)
        self.assertIn(("variant", "tests"), self.calls)
        needed = {value.split("@")[0].split("+")[0].split("~")[0] for name, value in self.calls if name == "depends_on"}
        self.assertLessEqual({"mpi", "hdf5", "boost", "eigen", "zlib-api", "xz", "jpeg", "py-torch", "cuda", "nccl"}, needed)

    def test_cmake_takes_every_eigen_that_it_takes(self):
        """Eigen's own CMake files refuse a request for another major version, and 5 came after 3."""
        eigen, = (value for name, value in self.calls if name == "depends_on" and value.startswith("eigen"))
        lowest, highest = re.fullmatch(r"eigen@([\d.]+):(\d+)", eigen).groups()
        asked = re.findall(r"find_package\(Eigen3 ([\d.]+) ", (PROJECT / "CMakeLists.txt").read_text())
        self.assertIn(lowest, asked)
        self.assertEqual({lowest.split(".")[0], highest}, {version.split(".")[0] for version in asked})

    def test_libtorch_is_where_the_python_has_its_modules(self):
        function, = (node for node in self.package.body if isinstance(node, ast.FunctionDef) and node.name == "torch")
        known = {"os": os}
        exec(compile(ast.Module([function], []), SPACK, "exec"), known)
        for platlib in ("lib/python3.12/site-packages", "lib64/python3.11/site-packages"):
            python = types.SimpleNamespace(package=types.SimpleNamespace(platlib=platlib))
            recipe = types.SimpleNamespace(spec={"py-torch": types.SimpleNamespace(prefix="/torch"), "python": python})
            self.assertEqual(known["torch"](recipe), f"/torch/{platlib}/torch")

    def test_what_wants_the_kind_of_gpu_is_told_it(self):
        """Spack finds no solution where one of them is not."""
        for name in ("py-torch", "nccl"):
            self.assertIn(f'depends_on(f"{name}+cuda cuda_arch={{arch}}", when=f"+cuda cuda_arch={{arch}}")', self.text)

    def test_its_options_are_cmakes(self):
        self.assertLessEqual(set(re.findall(r'"(FEDHPC_[A-Z_]+)"', self.text)) - {"FEDHPC_HOME"}, options_of_cmake())


class EasyBuild(unittest.TestCase):
    def setUp(self):
        self.path, = EASYBUILD.glob("*.eb")
        self.values = {}
        exec(compile(self.path.read_text(), self.path, "exec"), {"SOURCELOWER_TAR_GZ": "%(namelower)s.tar.gz"}, self.values)

    def test_what_it_declares(self):
        chain = self.values["toolchain"]
        self.assertEqual(self.path.name, f"fedhpc-{VERSION}-{chain['name']}-{chain['version']}.eb")
        self.assertEqual((self.values["name"], self.values["version"]), ("fedhpc", VERSION))
        for name in ("easyblock", "homepage", "description", "sources", "moduleclass"):
            self.assertIn(name, self.values)
        names = {name for name, *_ in self.values["dependencies"] + self.values["builddependencies"]}
        self.assertLessEqual({"PyTorch", "HDF5", "Boost", "Eigen", "zlib", "XZ", "libjpeg-turbo", "CMake", "h5py"}, names)

    def test_its_options_are_cmakes(self):
        self.assertLessEqual(set(re.findall(r"-D(FEDHPC_[A-Z_]+)=", self.values["configopts"])), options_of_cmake())

    def test_what_it_looks_for_is_installed(self):
        install = (PROJECT / "cmake/FedhpcInstall.cmake").read_text()
        for path in self.values["sanity_check_paths"]["files"] + self.values["sanity_check_paths"]["dirs"]:
            if path.startswith("share/fedhpc/"):
                self.assertTrue((PROJECT / path.removeprefix("share/fedhpc/")).exists(), path)
                self.assertIn(path.split("/")[2], install)


class Archive(unittest.TestCase):
    def test_the_command_of_the_recipe_makes_what_it_unpacks(self):
        line = next(line for line in next(EASYBUILD.glob("*.eb")).read_text().splitlines() if "git archive" in line)
        self.assertIn(f"--prefix=fedhpc-{VERSION}/", line)
        self.assertEqual(subprocess.run(["bash", "-n"], input=line.lstrip("# "), text=True, check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main()
