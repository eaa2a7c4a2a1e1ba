# A recipe for Spack 1.0 and newer, which builds a clone where it lies:
#
#   spack repo create ~/spack-fedhpc fedhpc                      # in its last line, FOLDER: ~/spack-fedhpc/spack_repo/fedhpc
#   mkdir FOLDER/packages/fedhpc && cp packaging/spack/package.py FOLDER/packages/fedhpc/
#   spack repo add FOLDER
#   spack dev-build fedhpc@0.1.0 +cuda cuda_arch=90              # in the clone
#
# LibTorch is the one of py-torch, whose headers and libraries lie in its Python package.

import os

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage


class Fedhpc(CMakePackage, CudaPackage):
    """Simulator of personalized and communication-compressed federated learning on clusters."""

    license("Apache-2.0")

    version("0.1.0")  # the clone's own; there is nothing to fetch

    variant("tools", default=True, description="Python libraries of the tools that draw and tabulate results")
    variant("python", default=False, description="The Python package, with the tools")
    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")

    depends_on("mpi@3:")
    depends_on("hdf5@1.10.7:~mpi")
    depends_on("boost@1.74:+program_options")
    depends_on("eigen@3.4:5", type="build")
    depends_on("zlib-api")
    depends_on("xz")
    depends_on("jpeg")
    depends_on("py-torch@2.6:", type=("build", "link", "run"))
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"py-torch+cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
        depends_on(f"nccl+cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    depends_on("py-torch~cuda", when="~cuda")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2.18:", when="+cuda")

    depends_on("python@3.11:", type=("build", "run"))
    extends("python", when="+python")
    for needs in ("+tools", "+python"):
        for library in ("py-numpy", "py-h5py", "py-pandas", "py-matplotlib"):
            depends_on(library, when=needs, type="run")
    depends_on("py-cloudpickle", when="+python", type="run")
    depends_on("py-tqdm", when="+python", type="run")
    depends_on("py-nanobind@2.2:", when="+python", type="build")
    depends_on("googletest+gmock", when="+tests", type="build")

    conflicts("%gcc@:11", msg="fedhpc is C++20 and needs GCC 12")
    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs: cuda_arch=90")

    generator("ninja")

    def torch(self):
        # lib64, or dist-packages, where an outside Python has it so
        return os.path.join(self.spec["py-torch"].prefix, self.spec["python"].package.platlib, "torch")

    def cmake_args(self):
        args = [
            self.define("FEDHPC_TORCH", self.torch()),
            self.define_from_variant("FEDHPC_TESTS", "tests"),
            self.define("FEDHPC_BENCH", False),
            self.define_from_variant("FEDHPC_PYTHON_MODULE", "python"),
            self.define("FEDHPC_PYTHON", self.spec["python"].command.path),
            self.define("FEDHPC_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define("FEDHPC_MARCH", ""),  # Spack's compiler wrapper sets the target
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("FEDHPC_CUDA_ARCHITECTURES", ";".join(self.spec.variants["cuda_arch"].value)))
        return args

    def setup_run_environment(self, env):
        env.set("FEDHPC_HOME", os.path.join(self.prefix, "share", "fedhpc"))  # where job scripts look

    @run_after("install", when="+python")
    def install_python_package(self):
        Executable("cmake")("--install", self.build_directory, "--prefix", python_platlib, "--component", "python")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        fedhpc = Executable(os.path.join(self.prefix.bin, "fedhpc"))
        fedhpc("--version")
        fedhpc("run", os.path.join(self.prefix, "share", "fedhpc", "configs", "quickstart.ini"), "--run.rounds=1",
               "--run.output=quickstart.h5")
