#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

namespace {

h5::Handle open_results(const std::string& path) {
  h5::Handle file;
  try {
    file = h5::open_input(path);
  } catch (const Error& error) {
    throw DataError(
        concat("'", path, "' cannot be read: ", error.what(), "; give a result file RUN.h5"));
  }
  if (!h5::exists(file, "/rounds/round") || !h5::exists(file, "/clients/train_samples")) {
    throw DataError(
        concat("'", path, "' is not a result file of fedhpc; give RUN.h5 as fedhpc run wrote it"));
  }
  return file;
}

/// The numbers of a data set, `rows` of them or more. Throws DataError for anything else.
std::vector<double> read_column(const h5::Handle& file, const std::string& path,
                                const std::string& name, std::size_t rows) {
  const auto refuse = [&](const std::string& reason) {
    return DataError(concat("'", path, "' cannot be read: ", reason,
                            "; give a result file RUN.h5 as fedhpc run wrote it"));
  };
  std::vector<double> column;
  try {
    column = h5::read_vector<double>(file, name);
  } catch (const Error& error) {
    throw refuse(error.what());
  }
  if (column.size() >= rows) return column;
  throw refuse(
      concat("data set '", name, "' has ", column.size(), " entries, expected at least ", rows));
}

/// /rounds/round is the commit record: what stands behind it is complete.
std::vector<double> read_rounds(const h5::Handle& file, const std::string& path) {
  const std::vector<double> rounds = read_column(file, path, "/rounds/round", 0);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (rounds[i] == static_cast<double>(i + 1)) continue;
    throw DataError(concat("'", path, "' is damaged: entry ", i, " of /rounds/round is ", rounds[i],
                           ", expected ", i + 1, "; its checkpoint can be resumed"));
  }
  return rounds;
}

/// An earlier table gets the name TABLE.old1.csv, or the next number.
void set_table_aside(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return;
  std::filesystem::path aside;
  int number = 0;
  do {
    aside = path;
    aside.replace_extension(concat("old", ++number, ".csv"));
  } while (std::filesystem::exists(aside, failed));
  std::filesystem::rename(path, aside, failed);
  if (failed) throw Error(concat("'", path.string(), "' cannot be set aside: ", failed.message()));
  std::printf("the earlier table is now %s\n", aside.c_str());
}

/// Writes columns of numbers; all columns have at least `rows` entries.
void write_csv(const std::filesystem::path& path, const std::vector<std::string>& names,
               const std::vector<std::vector<double>>& columns, std::size_t rows) {
  set_table_aside(path);
  errno = 0;
  std::ofstream out(path);
  out << join(names, ",") << '\n' << std::setprecision(17);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns.size(); ++column) {
      if (column > 0) out << ',';
      if (!std::isnan(columns[column][row])) out << columns[column][row];
    }
    out << '\n';
  }
  out.close();
  if (!out) {
    throw Error(concat("'", path.string(), "' cannot be written",
                       errno == 0 ? "" : concat(": ", std::strerror(errno))));
  }
  std::printf("%s\n", path.c_str());
}

}  // namespace

int export_command(const Arguments& arguments) {
  if (arguments.size() != 3 || arguments[1] != "--csv") {
    throw ConfigError(concat("fedhpc export got '", join(arguments, " "),
                             "'; allowed: fedhpc export RUN.h5 --csv DIR"));
  }
  const std::string& results = arguments[0];
  const h5::Handle file = open_results(results);
  std::vector<std::vector<double>> columns{read_rounds(file, results)};
  const std::filesystem::path folder = arguments[2];
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    throw ConfigError(concat("folder '", folder.string(), "' cannot be made: ", failed.message(),
                             "; give another --csv DIR"));
  }

  std::vector<std::string> names{"round"};
  for (const std::string& name : h5::names_in(file, "/rounds")) {
    if (name == "round") continue;
    names.push_back(name);
    columns.push_back(read_column(file, results, "/rounds/" + name, columns.front().size()));
  }
  write_csv(folder / "rounds.csv", names, columns, columns.front().size());

  const std::size_t clients = read_column(file, results, "/clients/train_samples", 1).size();
  names = {"client"};
  columns = {{}};
  for (const std::string name : {"edge", "train_samples", "validation_samples", "test_samples",
                                 "best_accuracy", "best_rmse"}) {
    if (!h5::exists(file, "/clients/" + name)) continue;
    names.push_back(name);
    columns.push_back(read_column(file, results, "/clients/" + name, clients));
  }
  for (std::size_t client = 0; client < clients; ++client) {
    columns.front().push_back(static_cast<double>(client));
  }
  write_csv(folder / "clients.csv", names, columns, clients);
  return 0;
}

}  // namespace fedhpc
