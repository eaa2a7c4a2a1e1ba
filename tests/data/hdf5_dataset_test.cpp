#include <cmath>
#include <functional>
#include <numeric>

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/io/hdf5.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

template <typename T>
void put(const h5::Handle& file, const std::string& name, const std::vector<hsize_t>& shape,
         const std::vector<T>& values) {
  h5::write_all(h5::create_dataset(file, name, h5::type_of<T>(), shape), h5::type_of<T>(),
                values.data());
}

class Hdf5DatasetTest : public ::testing::Test {
 protected:
  Hdf5DatasetTest() {
    options.name = "hdf5";
    options.file = folder.path("d.h5");
  }
  void write(const std::function<void(const h5::Handle&)>& fill) {
    fill(h5::open_file(options.file, h5::Mode::Create));
  }
  std::string refusal(const std::function<void(const h5::Handle&)>& fill) {
    write(fill);
    return message_of<DataError>([&] { open_dataset(options); });
  }

  TemporaryFolder folder;
  DataOptions options;
};

using Ints = std::vector<std::int64_t>;

TEST_F(Hdf5DatasetTest, PixelsWithTestSetAndClients) {
  write([](const h5::Handle& file) {
    put<std::uint8_t>(file, "x_train", {2, 1, 2}, {1, 2, 3, 4});
    put<std::int32_t>(file, "y_train", {2}, {4, 0});
    put<std::uint8_t>(file, "x_test", {1, 1, 2}, {5, 255});
    put<std::int64_t>(file, "y_test", {1}, {1});
    put<std::int64_t>(file, "client_train", {2}, {1, 0});
    put<std::int64_t>(file, "client_test", {1}, {1});
  });
  const auto data = open_dataset(options);
  EXPECT_EQ(data->shape(), (Ints{1, 1, 2}));
  EXPECT_EQ(data->classes(), 5);
  EXPECT_EQ(data->num_train(), 2);
  EXPECT_EQ(data->labels(), (Ints{4, 0, 1}));
  EXPECT_EQ(data->natural_clients(), (Ints{1, 0, 1}));
  const Ints ids = {2, 1};
  const Samples samples = data->read(ids);
  EXPECT_EQ(samples.features.scalar_type(), at::kByte);
  EXPECT_EQ(samples.features.data_ptr<std::uint8_t>()[1], 255);
  EXPECT_EQ(samples.features.data_ptr<std::uint8_t>()[2], 3);
  options.partition = "natural";
  options.clients = 2;
  EXPECT_EQ(make_partition(options, *data).clients(), 2);
}

TEST_F(Hdf5DatasetTest, OtherNumbersAreFloat64) {
  write([](const h5::Handle& file) {
    put<float>(file, "x_train", {3, 2}, {.5F, -1, 2, 3, 4, 5});
    put<double>(file, "y_train", {3}, {1, 0, 1});
  });
  const auto data = open_dataset(options);
  EXPECT_EQ(data->shape(), (Ints{2}));
  EXPECT_EQ(data->num_test(), 0);
  EXPECT_TRUE(data->natural_clients().empty());
  const Ints ids = {0};
  EXPECT_EQ(data->read(ids).features.data_ptr<double>()[0], .5);
}

TEST_F(Hdf5DatasetTest, WhatIsMissingOrDoesNotFitIsNamed) {
  const auto train = [](const h5::Handle& file) {
    put<double>(file, "x_train", {2, 1}, {1, 2});
    put<std::int64_t>(file, "y_train", {2}, {0, 1});
  };
  expect_in("d.h5', data set '/x_train': not found", refusal([](const h5::Handle&) {}));
  expect_in("'/x_train': found 1 dimensions", refusal([](const h5::Handle& file) {
              put<double>(file, "x_train", {2}, {1, 2});
              put<std::int64_t>(file, "y_train", {2}, {0, 1});
            }));
  expect_in("'/y_train': found 3 entries, expected 2, one for each of /x_train",
            refusal([](const h5::Handle& file) {
              put<double>(file, "x_train", {2, 1}, {1, 2});
              put<std::int64_t>(file, "y_train", {3}, {0, 1, 1});
            }));
  expect_in("'/y_train': found -1 at entry 1, expected a whole number from 0",
            refusal([](const h5::Handle& file) {
              put<double>(file, "x_train", {2, 1}, {1, 2});
              put<std::int64_t>(file, "y_train", {2}, {0, -1});
            }));
  expect_in("'/x_train': found nan in sample 1, feature 0", refusal([](const h5::Handle& file) {
              put<double>(file, "x_train", {2, 2}, {1, 2, std::nan(""), 3});
              put<std::int64_t>(file, "y_train", {2}, {0, 1});
            }));
  expect_in("'/y_test': not found, expected because there is /x_test",
            refusal([&](const h5::Handle& file) {
              train(file);
              put<double>(file, "x_test", {1, 1}, {1});
            }));
  expect_in("'/x_test': found samples of another shape", refusal([&](const h5::Handle& file) {
              train(file);
              put<double>(file, "x_test", {1, 2}, {1, 2});
              put<std::int64_t>(file, "y_test", {1}, {0});
            }));
  expect_in("'/x_test': found another number type", refusal([&](const h5::Handle& file) {
              train(file);
              put<std::uint8_t>(file, "x_test", {1, 1}, {1});
              put<std::int64_t>(file, "y_test", {1}, {0});
            }));
  expect_in("'/client_train': found 1 entries, expected 2", refusal([&](const h5::Handle& file) {
              train(file);
              put<std::int64_t>(file, "client_train", {1}, {0});
            }));
}

TEST_F(Hdf5DatasetTest, WhatWasNeverWrittenOrDoesNotFitIntoMemoryIsNamed) {
  const auto declare = [&](hsize_t rows, hsize_t written) {
    return refusal([=](const h5::Handle& file) {
      const h5::Handle x =
          h5::create_extendible(file, "x_train", h5::type_of<double>(), {1}, /*chunk_rows=*/4);
      const hsize_t shape[] = {rows, 1};
      ASSERT_GE(H5Dset_extent(x.id(), shape), 0);
      const std::vector<double> values(written, 1);
      h5::write_rows(x, h5::type_of<double>(), 0, written, values.data());
      put<std::int64_t>(file, "y_train", {2}, {0, 1});
    });
  };
  expect_in("'/x_train': only 1 of its 3 chunks were written", declare(12, 4));
  expect_in("'/x_train': its numbers take 35184372088832 bytes of memory, and",
            declare(hsize_t{1} << 42, 4));
  expect_in("'/x_train': its numbers take more than 2^64 bytes", declare(hsize_t{1} << 62, 4));
  expect_in("'/x_train': none of its numbers were written", refusal([](const h5::Handle& file) {
              h5::create_dataset(file, "x_train", h5::type_of<double>(), {2, 1});
              put<std::int64_t>(file, "y_train", {2}, {0, 1});
            }));
  expect_in("'/y_train': it does not hold numbers", refusal([](const h5::Handle& file) {
              put<double>(file, "x_train", {2, 1}, {1, 2});
              h5::write_texts(file, "y_train", {"cat", "dog"});
            }));
  const std::string booleans = refusal([](const h5::Handle& file) {
    const h5::Handle type = h5::Handle(H5Tenum_create(H5T_NATIVE_INT8), H5Tclose);
    const std::int8_t no = 0;
    H5Tenum_insert(type.id(), "FALSE", &no);
    h5::create_dataset(file, "x_train", type.id(), {2, 1});
    put<std::int64_t>(file, "y_train", {2}, {0, 1});
  });
  expect_in("'/x_train': it does not hold numbers; write booleans as whole numbers (uint8)",
            booleans);
}

TEST_F(Hdf5DatasetTest, LabelsFarBeyondTheSamplesAreRefused) {
  const auto message = [&](std::int64_t label) {
    return refusal([=](const h5::Handle& file) {
      put<double>(file, "x_train", {2, 1}, {1, 2});
      put<std::int64_t>(file, "y_train", {2}, {0, 1});
      put<double>(file, "x_test", {2, 1}, {1, 2});
      put<std::int64_t>(file, "y_test", {2}, {0, label});
    });
  };
  expect_in("'/y_test': found label 65536 at entry 1 among 4 samples, expected labels 0 to K - 1",
            message(65536));
}

TEST_F(Hdf5DatasetTest, TargetsOfASample) {
  const auto targets_of = [&](const auto& fill) {
    write([&](const h5::Handle& file) {
      put<double>(file, "x_train", {3, 1}, {1, 2, 3});
      fill(file);
    });
    return open_dataset(options);
  };
  const Ints ids = {2, 0};
  // Whole numbers of two dimensions and more.
  auto data = targets_of([](const h5::Handle& file) {
    put<std::int32_t>(file, "y_train", {3, 2}, {0, 1, 2, -100, 1, 2});
  });
  EXPECT_EQ(data->targets().kind, Targets::Kind::Whole);
  EXPECT_EQ(data->targets().count, 2);
  EXPECT_EQ(data->targets().values, (Ints{-100, 0, 1, 2}));
  EXPECT_FALSE(data->targets().is_binary());
  EXPECT_EQ(data->classes(), 1);
  EXPECT_EQ(data->labels(), (Ints{0, 0, 0}));
  EXPECT_TRUE(data->read(ids).targets.equal(at::tensor({1, 2, 0, 1}).to(at::kLong).view({2, 2})));
  data = targets_of([](const h5::Handle& file) {
    put<std::uint8_t>(file, "y_train", {3, 1, 2}, {0, 1, 1, 1, 0, 0});
    put<std::int64_t>(file, "label_train", {3}, {1, 0, 2});
  });
  EXPECT_TRUE(data->targets().is_binary());
  EXPECT_EQ(data->classes(), 3);
  EXPECT_EQ(data->labels(), (Ints{1, 0, 2}));
  // Floats of one dimension that are no labels, and of several.
  data = targets_of([](const h5::Handle& file) { put<float>(file, "y_train", {3}, {1, -.5, 2}); });
  EXPECT_EQ(data->targets().kind, Targets::Kind::Numbers);
  EXPECT_EQ(data->targets().mean_square, 5.25 / 3);
  EXPECT_TRUE(data->read(ids).targets.equal(at::tensor({2.0, 1.0}).view({2, 1})));
  data = targets_of([](const h5::Handle& file) {
    put<double>(file, "y_train", {3}, {0, 1, 2});
    put<std::int64_t>(file, "label_train", {3}, {0, 0, 0});
  });
  EXPECT_EQ(data->targets().kind, Targets::Kind::Numbers);
  EXPECT_EQ(data->classes(), 1);
  data = targets_of([](const h5::Handle& file) { put<double>(file, "y_train", {3}, {0, 1, 2}); });
  EXPECT_EQ(data->targets().kind, Targets::Kind::Label);
  EXPECT_EQ(data->classes(), 3);

  options.partition = "shards";
  data = targets_of([](const h5::Handle& file) { put<float>(file, "y_train", {3}, {1, .5, 2}); });
  expect_in("data.partition = shards deals samples by their labels, and hdf5 has none",
            message_of<ConfigError>([&] { make_partition(options, *data); }));
}

TEST_F(Hdf5DatasetTest, WholeNumbersAreClassesOrNumbersAsTheKeySays) {
  const auto fill = [](const std::vector<double>& y) {
    return [=](const h5::Handle& file) {
      put<double>(file, "x_train", {y.size(), 1}, y);
      put<double>(file, "y_train", {y.size()}, y);
      put<double>(file, "x_test", {2, 1}, {1, 2});
      put<std::int64_t>(file, "y_test", {2}, {1, 0});
    };
  };
  write(fill({0, 2, 2}));
  EXPECT_EQ(open_dataset(options)->targets().kind, Targets::Kind::Label);
  options.label_kind = LabelKind::Number;
  const auto numbers = open_dataset(options);
  EXPECT_EQ(numbers->targets().kind, Targets::Kind::Numbers);
  EXPECT_EQ(numbers->targets().mean_square, 9.0 / 5);
  EXPECT_EQ(numbers->classes(), 1);

  std::vector<double> each_its_own(30);
  std::iota(each_its_own.begin(), each_its_own.end(), 0);
  write(fill(each_its_own));
  EXPECT_EQ(open_dataset(options)->targets().count, 1);
  options.label_kind = LabelKind::Class;
  EXPECT_EQ(open_dataset(options)->classes(), 30);
  options.label_kind = LabelKind::Auto;
  expect_in("28 of 32 samples have a label that no other one has; set data.label_kind = number",
            refusal(fill(each_its_own)));
  options.label_kind = LabelKind::Class;
  expect_in("'/y_train': found 0.5 at entry 1, expected a whole number from 0",
            refusal(fill({0, .5})));
  expect_in("'/y_train': found floats as targets, expected whole numbers with data.label_kind = ",
            refusal([](const h5::Handle& file) {
              put<double>(file, "x_train", {2, 1}, {1, 2});
              put<double>(file, "y_train", {2, 1}, {1, 2});
            }));
}

TEST_F(Hdf5DatasetTest, TargetsThatDoNotFitAreRefused) {
  const auto message = [&](const auto& fill) {
    return refusal([&](const h5::Handle& file) {
      put<double>(file, "x_train", {2, 1}, {1, 2});
      fill(file);
    });
  };
  expect_in("'/y_train': found 3 entries, expected 2", message([](const h5::Handle& file) {
              put<double>(file, "y_train", {3, 1}, {1, 2, 3});
            }));
  expect_in("found inf in sample 1, place 0, expected a finite number",
            message([](const h5::Handle& file) {
              put<double>(file, "y_train", {2, 2}, {1, 2, HUGE_VAL, 3});
            }));
  expect_in("found 2147483648 in sample 0, place 1, expected a whole number within 2^31",
            message([](const h5::Handle& file) {
              put<std::int64_t>(file, "y_train", {2, 2}, {1, 2147483648, 2, 3});
            }));
  const auto tested = [&](const auto& fill) {
    return message([&](const h5::Handle& file) {
      put<double>(file, "y_train", {2, 2}, {1, 2, 4, 3});
      put<double>(file, "x_test", {1, 1}, {1});
      fill(file);
    });
  };
  expect_in("'/y_test': found targets of another shape", tested([](const h5::Handle& file) {
              put<double>(file, "y_test", {1, 3}, {1, 2, 3});
            }));
  expect_in("'/y_test': found another kind of numbers", tested([](const h5::Handle& file) {
              put<std::int32_t>(file, "y_test", {1, 2}, {1, 2});
            }));
  expect_in("'/label_test': not found, expected because there is /label_train",
            tested([](const h5::Handle& file) {
              put<double>(file, "y_test", {1, 2}, {1, 2});
              put<std::int32_t>(file, "label_train", {2}, {1, 2});
            }));
}

TEST_F(Hdf5DatasetTest, AFileMayHaveMoreClassesThanItsLabelsShow) {
  const auto fill = [](std::int64_t classes) {
    return [=](const h5::Handle& file) {
      put<double>(file, "x_train", {2, 1}, {1, 2});
      put<std::int64_t>(file, "y_train", {2}, {0, 7});
      h5::write_attribute(h5::open_dataset(file, "y_train"), "classes", classes);
    };
  };
  write(fill(80));
  EXPECT_EQ(open_dataset(options)->classes(), 80);
  write(fill(8));
  EXPECT_EQ(open_dataset(options)->classes(), 8);
  expect_in("'/y_train': its attribute 'classes' is 7, expected 8 to 65536", refusal(fill(7)));
  expect_in("'/y_train': its attribute 'classes' is 65537", refusal(fill(65537)));
}

TEST_F(Hdf5DatasetTest, ASequenceMayHaveMoreClassesThanItsPlacesShow) {
  const auto fill = [](std::int64_t classes) {
    return [=](const h5::Handle& file) {
      put<double>(file, "x_train", {2, 1}, {1, 2});
      put<std::int64_t>(file, "y_train", {2, 2}, {0, -100, 7, 1});
      h5::write_attribute(h5::open_dataset(file, "y_train"), "classes", classes);
    };
  };
  write(fill(80));
  EXPECT_EQ(open_dataset(options)->targets().classes, 80);
  EXPECT_EQ(open_dataset(options)->classes(), 1) << "of labels, which it has not";
  expect_in("'/y_train': its attribute 'classes' is 0, expected 1 to 2147483648", refusal(fill(0)));
  write(fill(100277));  // as many as tokens, of which a small file shows few
  EXPECT_EQ(open_dataset(options)->targets().classes, 100277);
}

TEST_F(Hdf5DatasetTest, AFileThatIsNoHdf5OrMissingIsNamed) {
  const auto message = [&] { return message_of<DataError>([&] { open_dataset(options); }); };
  expect_in("d.h5' cannot be read: there is no such file", message());
  write_bytes(options.file, {1, 2, 3});
  expect_in("d.h5' cannot be read: it is not an HDF5 file", message());
  options.file.clear();
  expect_in("data.name = hdf5 needs the key data.file",
            message_of<ConfigError>([&] { open_dataset(options); }));
}

}  // namespace
}  // namespace fedhpc
