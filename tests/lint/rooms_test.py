"""What rooms.py refuses: a line planted in a source of a room."""

import pathlib
import tempfile
import unittest

import rooms


class Rooms(unittest.TestCase):
    def planted(self, file: str, line: str) -> list[str]:
        """The problems of 20 sources without any, and this line in one more."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            (source / "src/core").mkdir(parents=True)
            for number in range(20):
                (source / f"src/core/file{number}.cpp").write_text('#include "fedhpc/core/error.hpp"\n')
            path = source / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"\n{line}\n")
            found = rooms.problems(source)
            self.assertTrue(all(one.startswith(f"{path}:2: ") for one in found), found)
            return found

    def test_refused(self):
        for file, line in [
            ("src/models/linear.cpp", '#include "fedhpc/rounds/block.hpp"'),
            ("src/rounds/mean.cpp", "#include <mpi.h>"),
            ("src/algorithms/fedavg.cpp", '#include "fedhpc/plugin.hpp"'),
            ("include/fedhpc/plugin.hpp", '#include "fedhpc/engine/config.hpp"'),
            ("src/app/dispatch.cpp", "#include <hdf5.h>"),
            ("src/algorithms/fedavg.cpp", '#include "fedhpc/core/device.hpp"'),
            ("include/fedhpc/algorithms/fedavg.hpp", '#include "fedhpc/core/device_kernels.hpp"'),
            ("src/algorithms/fedavg.cpp", '#include "fedhpc/core/to_device.hpp"'),
            ("src/algorithms/fedavg.cpp", '#include "fedhpc/rounds/device_row_memory.hpp"'),
            ("src/algorithms/fedavg.cpp", "  if (on_device(rows.values)) return;"),
            ("src/algorithms/fedavg.cpp", "  const Tensor sums = row_products_on_device(x, y, ranges);"),
            ("src/algorithms/fedavg.cpp", "  const Tensor here = rows.values.cpu();"),
            ("src/algorithms/fedavg.cpp", "  const Tensor there = here.to(rows.values.device());"),
            ("src/algorithms/fedavg.cpp", "  const Tensor here = at::empty({2}, at::kCPU);"),
            ("src/codecs/codec.cpp", '#include "fedhpc/core/device_kernels.hpp"'),
            ("src/math/products.cpp", '#include "fedhpc/comm/gpu_library.hpp"'),
            ("src/engine/resume.cpp", "  const hid_t type = h5::type_of<double>();"),
            ("src/app/dispatch.cpp", "  H5get_libversion(&major, &minor, &release);"),
            ("src/engine/resume.cpp", "  if (H5Fis_hdf5(path.c_str()) > 0) return;"),
        ]:
            with self.subTest(file=file, line=line):
                self.assertEqual(len(self.planted(file, line)), 1)

    def test_allowed(self):
        for file, line in [
            ("src/io/hdf5.cpp", "  const hid_t type = H5Dget_type(dataset.id());"),
            ("src/models/linear.cpp", '#include "fedhpc/core/device.hpp"'),
            ("src/rounds/mean.cpp", "  if (on_device(rows.values)) return;"),
            ("src/algorithms/fedavg.cpp", "  global_ += update.reduce();  // rows on_device too"),
            ("src/algorithms/fedavg.cpp", '#include "fedhpc/models/row_measures.hpp"'),
        ]:
            with self.subTest(file=file, line=line):
                self.assertEqual(self.planted(file, line), [])

    def test_not_a_room(self):
        self.assertEqual(len(rooms.problems(pathlib.Path(__file__).parent)), 1)


if __name__ == "__main__":
    unittest.main()
