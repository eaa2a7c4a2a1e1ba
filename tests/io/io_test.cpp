#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sys/resource.h>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/io/results_writer.hpp"

#include "fixtures/temporary_folder.hpp"

namespace fedhpc {
namespace {

/// The parameters below a group, in order of creation.
std::vector<NamedTensor> read_parameters(const h5::Handle& file, const std::string& group) {
  std::vector<NamedTensor> parameters;
  for (const std::string& name : h5::names_in(file, group)) {
    const h5::Handle dataset = h5::open_dataset(file, group + "/" + name);
    const std::vector<hsize_t> shape = h5::shape_of(dataset);
    const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
    Tensor values = at::empty(sizes, at::kDouble);
    h5::read_all(dataset, h5::type_of<double>(), values.data_ptr());
    parameters.push_back({name, values});
  }
  return parameters;
}

namespace fs = std::filesystem;

class IoTest : public ::testing::Test {
 protected:
  ResultsWriter writer(const std::string& config = "[run]\nseed = 3\n",
                       LiveMode live = LiveMode::Swmr,
                       const std::vector<Metric>& series = {{"loss", "1", "mean loss"}}) const {
    RunHeader header{.config = config,
                     .command_line = "fedhpc run",
                     .seed = 3,
                     .processor = "A, model 1",
                     .device = "cpu",
                     .hostnames = {"one", "another"}};
    return {path_,
            live,
            header,
            series,
            {.edge = {-1, -1}, .train_samples = {5, 6}, .test_samples = {1, 2}, .classes = 2}};
  }

  const testing_support::TemporaryFolder folder_;
  const std::string copy_ = folder_.path("copy.h5");
  const std::string path_ = folder_.path("run.h5");
};

TEST_F(IoTest, LabelCountsAreWrittenInParts) {
  {
    ResultsWriter file = writer();
    for (const std::int64_t client : {1, 0}) {
      file.write_label_histogram(client, at::full({1, 2}, 7 + client, at::kLong));
    }
    file.start();
  }
  const h5::Handle file = h5::open_input(path_);
  const h5::Handle dataset = h5::open_dataset(file, "/clients/label_histogram");
  ASSERT_EQ(h5::shape_of(dataset), (std::vector<hsize_t>{2, 2}));
  std::vector<std::int64_t> counts(4);
  h5::read_all(dataset, h5::type_of<std::int64_t>(), counts.data());
  EXPECT_EQ(counts, (std::vector<std::int64_t>{7, 7, 8, 8}));
}

TEST_F(IoTest, AFileThatCannotBeginLeavesNothing) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit nothing{0, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &nothing);
  EXPECT_THROW(writer(), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(fs::exists(path_ + ".tmp"));
}

TEST_F(IoTest, HandleClosesOnceAndMovesLeaveNull) {
  const h5::Handle file = h5::open_file(path_, h5::Mode::Create);
  const auto open_groups = [&] { return H5Fget_obj_count(file.id(), H5F_OBJ_GROUP); };
  {
    h5::Handle first = h5::create_group(file, "/a");
    EXPECT_EQ(open_groups(), 1);
    h5::Handle second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what is tested
    EXPECT_EQ(open_groups(), 1);
    second = h5::create_group(file, "/b");  // closes /a
    EXPECT_EQ(open_groups(), 1);
    h5::Handle& same = second;
    second = std::move(same);
    EXPECT_TRUE(second);
  }
  EXPECT_EQ(open_groups(), 0);
}

TEST_F(IoTest, ErrorsNameTheFileAndTheReason) {
  try {
    h5::open_file("/no/such/folder/x.h5", h5::Mode::Read);
    FAIL() << "a missing file was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/folder/x.h5"), std::string::npos);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST_F(IoTest, VectorsTextsAndAttributesRoundTrip) {
  const std::vector<std::int64_t> numbers{1, -2, 1LL << 40};
  {
    const h5::Handle file = h5::open_file(path_, h5::Mode::Create);
    h5::write_vector(file, "/deep/in/numbers", numbers);
    h5::write_vector(file, "/empty", std::vector<double>{});
    h5::write_attribute(file, "text", "short", 16);
    h5::rewrite_attribute(file, "text", "a longer one");
    EXPECT_THROW(h5::rewrite_attribute(file, "text", std::string(17, 'x')), std::logic_error);
  }
  const h5::Handle file = h5::open_file(path_, h5::Mode::Read);
  EXPECT_EQ(h5::read_vector<std::int64_t>(file, "/deep/in/numbers"), numbers);
  EXPECT_EQ(h5::read_vector<double>(file, "/deep/in/numbers")[2], 0x1p40);
  EXPECT_TRUE(h5::read_vector<double>(file, "/empty").empty());
  EXPECT_EQ(h5::read_text_attribute(file, "text"), "a longer one");
  EXPECT_TRUE(h5::exists(file, "/deep/in"));
  EXPECT_FALSE(h5::exists(file, "/deep/out/numbers"));
}

TEST_F(IoTest, ResultsCanBeReadWhileTheyGrow) {
  ResultsWriter out = writer();
  const std::vector<NamedTensor> model{{"fc1.weight", at::arange(6, at::kFloat).view({2, 3})},
                                       {"a.bias", at::arange(2, at::kFloat)}};
  write_parameters(out.file(), "/model/init/global", model);
  out.declare_model("global", model);
  out.start();
  for (std::int64_t round = 1; round <= 3; ++round) {
    out.append_client_scores(round, {0.5, 1.0}, {0.5, 1.0});
    out.append_round(round, {0.25 * static_cast<double>(round)});
    const h5::Handle reader = h5::open_file(path_, h5::Mode::ReadSwmr);
    EXPECT_EQ(h5::read_vector<std::int64_t>(reader, "/rounds/round").size(),
              static_cast<std::size_t>(round));
    EXPECT_EQ(h5::read_vector<double>(reader, "/rounds/loss").back(),
              0.25 * static_cast<double>(round));
    EXPECT_EQ(h5::read_text_attribute(reader, "status"), "running");
  }
  out.write_model("global", model);
  out.finish("complete");
  const h5::Handle reader = h5::open_file(path_, h5::Mode::ReadSwmr);
  EXPECT_EQ(h5::read_text_attribute(reader, "status"), "complete");
  EXPECT_FALSE(h5::read_text_attribute(reader, "finished").empty());
  EXPECT_EQ(h5::shape_of(h5::open_dataset(reader, "/clients/accuracy")),
            (std::vector<hsize_t>{3, 2}));
  // Parameters come back in the order of the row, not of their names.
  for (const std::string group : {"/model/init/global", "/model/global"}) {
    const std::vector<NamedTensor> read = read_parameters(reader, group);
    ASSERT_EQ(read.size(), 2U);
    EXPECT_EQ(read[0].name, "fc1.weight");
    EXPECT_TRUE(read[0].values.equal(model[0].values.to(at::kDouble)));
    EXPECT_TRUE(read[1].values.equal(model[1].values.to(at::kDouble)));
  }
}

TEST_F(IoTest, ALongConfigurationMovesToADataSet) {
  const std::string config(70 * 1024, 'x');
  writer(config).start();
  const h5::Handle file = h5::open_file(path_, h5::Mode::Read);
  EXPECT_TRUE(h5::exists(file, "/config"));
  EXPECT_FALSE(h5::has_attribute(file, "config"));
  EXPECT_EQ(read_config(file), config);
}

TEST_F(IoTest, FlushedResultsOpenForAnyReaderAtAnyTime) {
  ResultsWriter out = writer("[run]\nseed = 3\n", LiveMode::Flush);
  out.start();
  for (std::int64_t round = 1; round <= 3; ++round) {
    out.append_client_scores(round, {0.5, 1.0}, {0.5, 1.0});
    out.append_round(round, {0.25 * static_cast<double>(round)});
    // What a kill would leave behind.
    fs::copy_file(path_, copy_, fs::copy_options::overwrite_existing);
    const h5::Handle reader = h5::open_whole(copy_);
    EXPECT_EQ(h5::read_vector<std::int64_t>(reader, "/rounds/round").size(),
              static_cast<std::size_t>(round));
    EXPECT_EQ(h5::read_vector<double>(reader, "/rounds/loss").back(),
              0.25 * static_cast<double>(round));
  }
}

herr_t note_header(hid_t, const char* name, const H5O_info_t* object, void* into) {
  if (object->hdr.nchunks == 1) {
    auto& crossing = *static_cast<std::vector<std::string>*>(into);
    constexpr haddr_t kPage = 4096;  // bytes
    const haddr_t last = object->addr + object->hdr.space.total - 1;
    if (object->addr / kPage != last / kPage) crossing.emplace_back(name);
  }
  return 0;
}

TEST_F(IoTest, NoHeaderThatGrowsCrossesAPage) {
  std::vector<Metric> series;
  for (int i = 0; i < 60; ++i) {
    series.push_back(
        {"of_" + std::to_string(i), "1", std::string(static_cast<std::size_t>(i), 'x')});
  }
  ResultsWriter out = writer("[run]\nseed = 3\n", LiveMode::Swmr, series);
  out.start();
  out.append_round(1, std::vector<double>(series.size(), 0.5));
  const h5::Handle reader = h5::open_file(path_, h5::Mode::ReadSwmr);
  std::vector<std::string> crossing;
  ASSERT_GE(H5Ovisit(reader.id(), H5_INDEX_NAME, H5_ITER_INC, note_header, &crossing), 0);
  EXPECT_EQ(crossing, std::vector<std::string>{}) << "a kill may end a write between two pages";
}

TEST_F(IoTest, NothingIsThereBeforeTheStart) {
  {
    const ResultsWriter out = writer();
    EXPECT_FALSE(fs::exists(path_));
    EXPECT_TRUE(fs::exists(path_ + ".tmp"));
  }
  EXPECT_FALSE(fs::exists(path_ + ".tmp")) << "an unfinished file is removed";
}

TEST_F(IoTest, AFileGoesOnWhereAnotherEnds) {
  ResultsWriter first = writer();
  write_parameters(first.file(), "/model/init/global", {{"w", at::arange(4, at::kFloat)}});
  first.declare_cohorts(2);
  first.start();
  for (std::int64_t round = 1; round <= 3; ++round) {
    first.append_cohort({round, round + 1});
    first.append_client_scores(round, {0.5, 0.25}, {0.5, 1.0});
    first.append_round(round, {1.0 / static_cast<double>(round)});
  }
  // As files were before they knew their starts.
  const std::string old_path = copy_ + ".old";
  const Unfinished removed(old_path);
  const h5::Handle old = h5::open_file(old_path, h5::Mode::CreatePortable);
  h5::copy_contents(first.file(), old, {"/starts"});
  // The first file is still being written; its copy has a format, a series and a place of its own.
  for (const LiveMode live : {LiveMode::Swmr, LiveMode::Flush}) {
    ResultsWriter second(copy_, live,
                         {.config = "[run]\nseed = 4\n",
                          .command_line = "fedhpc resume",
                          .ranks = 5,
                          .processor = "B + A, model 1",
                          .device = "cpu",
                          .hostnames = {"third"}},
                         {{"loss", "1", "mean loss"}, {"new", "1", "a new one"}},
                         live == LiveMode::Swmr ? first.file() : old);
    second.declare_cohorts(2);
    second.start();
    second.append_cohort({7, 8});
    second.append_round(4, {0.125, 2});
    const h5::Handle file =
        h5::open_file(copy_, live == LiveMode::Swmr ? h5::Mode::ReadSwmr : h5::Mode::Read);
    EXPECT_EQ(h5::read_vector<std::int64_t>(file, "/rounds/round"),
              (std::vector<std::int64_t>{1, 2, 3, 4}));
    EXPECT_EQ(h5::read_vector<double>(file, "/rounds/loss"),
              (std::vector<double>{1, 0.5, 1.0 / 3, 0.125}));
    EXPECT_TRUE(std::isnan(h5::read_vector<double>(file, "/rounds/new")[2]));
    EXPECT_EQ(h5::read_vector<double>(file, "/rounds/new")[3], 2);
    EXPECT_EQ(h5::shape_of(h5::open_dataset(file, "/clients/accuracy")),
              (std::vector<hsize_t>{3, 2}));
    EXPECT_EQ(h5::shape_of(h5::open_dataset(file, "/draws/cohort")), (std::vector<hsize_t>{4, 2}));
    EXPECT_TRUE(
        read_parameters(file, "/model/init/global")[0].values.equal(at::arange(4, at::kDouble)));
    EXPECT_EQ(h5::read_text_attribute(file, "command_line"), "fedhpc run; fedhpc resume");
    EXPECT_EQ(h5::read_integer_attribute(file, "ranks"), 5);
    EXPECT_EQ(h5::read_text_attribute(file, "processor"), "A, model 1 + B");
    EXPECT_EQ(h5::read_vector<std::int64_t>(file, "/starts/first_round"),
              (std::vector<std::int64_t>{1, 4}));
    EXPECT_EQ(h5::read_vector<std::int64_t>(file, "/starts/ranks"),
              (std::vector<std::int64_t>{1, 5}));
    EXPECT_EQ(read_config(file), "[run]\nseed = 4\n");
    EXPECT_EQ(h5::read_text_attribute(file, "started"),
              h5::read_text_attribute(first.file(), "started"));
  }
}

TEST_F(IoTest, RefusesAnotherModelThanDeclared) {
  ResultsWriter out = writer();
  out.declare_model("global", {{"w", at::arange(2, at::kFloat)}});
  out.start();
  EXPECT_THROW(out.write_model("global", {{"v", at::arange(2, at::kFloat)}}), std::logic_error);
}

/// The most memory this process has held since the last call, in bytes; 0 where the system does not
/// tell.
std::int64_t peak_memory() {
  std::int64_t peak = 0;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:" && status >> peak) break;
  }
  std::ofstream("/proc/self/clear_refs") << "5\n";  // the peak starts again from what is held now
  return 1024 * peak;
}

/// Writes rows of two numbers, each a chunk of its own.
void write_many_chunks(const std::string& path, const std::vector<float>& values) {
  const h5::Handle file = h5::open_file(path, h5::Mode::Create);
  const h5::Handle data =
      h5::create_extendible(file, "/data", h5::type_of<float>(), {2}, /*chunk_rows=*/1);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    h5::append(data, h5::type_of<float>(), &values[i]);
  }
}

TEST_F(IoTest, AFileOfManySmallChunksIsNotTakenForADamagedOne) {
  write_many_chunks(path_, std::vector<float>(60000, 1.0F));
  EXPECT_EQ(h5::bytes_of(h5::open_input(path_)), static_cast<std::int64_t>(fs::file_size(path_)));
}

TEST_F(IoTest, ACopyNeedsNoMoreMemoryForManySmallChunks) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer keeps what was freed";
#endif
  std::vector<float> values(60000);
  std::iota(values.begin(), values.end(), 0.0F);
  write_many_chunks(path_, values);
  const h5::Handle from = h5::open_file(path_, h5::Mode::Read);
  const h5::Handle to = h5::open_file(copy_, h5::Mode::Create);
  peak_memory();
  const std::int64_t before = peak_memory();
  h5::copy_contents(from, to, {});
  const std::int64_t after = peak_memory();
  EXPECT_LT(after - before, std::int64_t{64} << 20);

  std::vector<float> copied(values.size());
  h5::read_all(h5::open_dataset(to, "/data"), h5::type_of<float>(), copied.data());
  EXPECT_EQ(copied, values);
}

TEST_F(IoTest, ACopyDoesNotWriteWhatWasNeverWritten) {
  const h5::Handle from = h5::open_file(path_, h5::Mode::Create);
  h5::create_dataset(from, "/reserved", h5::type_of<float>(), {1000});
  const h5::Handle to = h5::open_file(copy_, h5::Mode::Create);
  h5::copy_contents(from, to, {});
  const h5::Handle copied = h5::open_dataset(to, "/reserved");
  EXPECT_EQ(h5::shape_of(copied), std::vector<hsize_t>{1000});
  EXPECT_EQ(H5Dget_storage_size(copied.id()), 0);
}

TEST_F(IoTest, ACopyThatFailsAtAnAttributeSaysWhy) {
  {
    const h5::Handle file = h5::open_file(path_, h5::Mode::Create);
    h5::write_attribute(file, "seed", std::int64_t{3});
  }
  h5::open_file(copy_, h5::Mode::Create);
  const h5::Handle from = h5::open_file(path_, h5::Mode::Read);
  const h5::Handle to = h5::open_file(copy_, h5::Mode::Read);
  try {
    h5::copy_contents(from, to, {});
    FAIL() << "it cannot be written to";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "HDF5: cannot copy attribute 'seed' of '/': no write intent on file");
  }
}

}  // namespace
}  // namespace fedhpc
