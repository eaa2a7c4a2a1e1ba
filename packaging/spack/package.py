# A recipe for Spack: copy it to a repository of your own as packages/fedhpc/package.py, or from a clone
#
#   spack repo create ~/spack-fedhpc fedhpc && mkdir ~/spack-fedhpc/packages/fedhpc
#   cp packaging/spack/package.py ~/spack-fedhpc/packages/fedhpc/ && spack repo add ~/spack-fedhpc
#   spack dev-build fedhpc@main         # in the clone
#
# LibTorch is the one of py-torch, whose headers and libraries lie in its Python package.

import os

from spack.package import *


class Fedhpc(CMakePackage, CudaPackage):
    """Simulator of personalized and communication-compressed federated learning on clusters."""

    license("Apache-2.0")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("tools", default=True, description="Python libraries of the tools that draw and tabulate results")
    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")

    depends_on("mpi@3:")
    depends_on("hdf5@1.10:~mpi")
    depends_on("boost@1.74:+program_options")
    depends_on("eigen@3.4:", type="build")
    depends_on("zlib-api")
    depends_on("xz")
    depends_on("jpeg")
    depends_on("py-torch@2.6:", type=("build", "link", "run"))
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"py-torch+cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    depends_on("py-torch~cuda", when="~cuda")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2.18:", when="+cuda")

    depends_on("python@3.11:", when="+tools", type="run")
    depends_on("py-numpy", when="+tools", type="run")
    depends_on("py-h5py", when="+tools", type="run")
    depends_on("py-pandas", when="+tools", type="run")
    depends_on("py-matplotlib", when="+tools", type="run")
    depends_on("googletest+gmock", when="+tests", type="build")

    conflicts("%gcc@:11", msg="fedhpc is C++20 and needs GCC 12")
    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs: cuda_arch=90")

    generator("ninja")

    def torch(self):
        return os.path.join(self.spec["py-torch"].package.prefix, python_platlib_of(self.spec), "torch")

    def cmake_args(self):
        args = [
            self.define("FEDHPC_TORCH", self.torch()),
            self.define_from_variant("FEDHPC_TESTS", "tests"),
            self.define("FEDHPC_BENCH", False),
            self.define("FEDHPC_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("FEDHPC_MARCH", ""),  # Spack's compiler wrapper sets the target
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("FEDHPC_CUDA_ARCHITECTURES", ";".join(self.spec.variants["cuda_arch"].value)))
        return args

    def setup_run_environment(self, env):
        env.set("FEDHPC_HOME", os.path.join(self.prefix, "share", "fedhpc"))  # where job scripts look

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        fedhpc = Executable(os.path.join(self.prefix.bin, "fedhpc"))
        fedhpc("--version")
        fedhpc("run", os.path.join(self.prefix, "share", "fedhpc", "configs", "quickstart.ini"), "--run.rounds=1",
               "--run.output=quickstart.h5")


def python_platlib_of(spec):
    """Python's folder of packages below a prefix, such as lib/python3.11/site-packages."""
    return os.path.join("lib", f"python{spec['python'].version.up_to(2)}", "site-packages")
