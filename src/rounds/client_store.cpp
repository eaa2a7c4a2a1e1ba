#include "fedhpc/rounds/client_store.hpp"

#include <algorithm>
#include <cstring>

namespace fedhpc {

void StoreOptions::declare(OptionSet& options) {
  options
      .add_or_auto("store.device_budget", device_budget, at_least<std::int64_t>(0),
                   "bytes of per-client rows kept on the device before the rest goes to host "
                   "memory; auto: half of what is free")
      .acts(where("run.device", {"cuda"}));
}

double ScalarColumn::read(std::int64_t client) const {
  const std::size_t position = clients_.position(client);
  return values_.empty() ? initial_ : values_[position];
}

std::vector<double> ScalarColumn::read(std::span<const std::int64_t> clients) const {
  std::vector<double> values;
  values.reserve(clients.size());
  for (const std::int64_t client : clients) values.push_back(read(client));
  return values;
}

void ScalarColumn::write(std::int64_t client, double value) {
  const std::size_t position = clients_.position(client);
  if (values_.empty()) {
    values_.assign(static_cast<std::size_t>(clients_.with_guests()), initial_);
    written_.assign(values_.size(), false);
  }
  values_[position] = value;
  written_[position] = true;
}

void ScalarColumn::write(std::span<const std::int64_t> clients, std::span<const double> values) {
  require(clients.size() == values.size(), "one number per client");
  for (std::size_t c = 0; c < clients.size(); ++c) write(clients[c], values[c]);
}

bool ScalarColumn::written(std::int64_t client) const {
  const std::size_t position = clients_.position(client);
  return !written_.empty() && written_[position];
}

std::vector<std::int64_t> ScalarColumn::written_clients() const {
  std::vector<std::int64_t> clients;
  for (std::size_t i = 0; i < std::min(written_.size(), clients_.ids().size()); ++i) {
    if (written_[i]) clients.push_back(clients_.ids()[i]);
  }
  return clients;
}

void ScalarColumn::seat_guests() {
  if (values_.empty()) return;
  for (auto count : {clients_.count(), clients_.with_guests()}) {
    values_.resize(static_cast<std::size_t>(count), initial_);
    written_.resize(static_cast<std::size_t>(count), false);
  }
}

void ScalarColumn::copy_out(std::int64_t client, void* to) const {
  const double value = read(client);
  std::memcpy(to, &value, sizeof value);
}

void ScalarColumn::copy_in(std::int64_t client, const void* from) {
  double value = 0;
  std::memcpy(&value, from, sizeof value);
  write(client, value);
}

void ScalarColumn::clear() {
  values_ = {};
  written_ = {};
}

StoreBytes ScalarColumn::memory_bytes() const {
  return {.device = 0, .host = values_.empty() ? 0 : full_bytes()};
}

std::int64_t ScalarColumn::full_bytes() const {
  constexpr std::int64_t kBits = 8;  // one tells whether the client is written
  return clients_.count() * std::int64_t{sizeof(double)} + (clients_.count() + kBits - 1) / kBits;
}

ClientStore::ClientStore(std::vector<std::int64_t> clients, const StoreOptions& options,
                         RowMemory* device, RowMemory& host)
    : clients_(std::move(clients)), placement_(device, host, options.device_budget) {}

StoredRows& ClientStore::rows(const std::string& name, const Rows& initial) {
  require(!has_rows(name),
          "rows of a store are made once: by a method, or by its links or buffers");
  return *rows_.emplace(name, std::make_unique<StoredRows>(clients_, placement_, initial))
              .first->second;
}

StoredRows& ClientStore::rows(const std::string& name) {
  const auto found = rows_.find(name);
  require(found != rows_.end(), "the store has rows of this name");
  return *found->second;
}

ScalarColumn& ClientStore::scalars(const std::string& name, double initial) {
  if (!has_scalars(name)) {
    scalars_.emplace(name, std::make_unique<ScalarColumn>(clients_, initial));
  }
  return scalars(name);
}

ScalarColumn& ClientStore::scalars(const std::string& name) {
  const auto found = scalars_.find(name);
  require(found != scalars_.end(), "the store has a scalar column of this name");
  return *found->second;
}

std::vector<std::string> ClientStore::row_names() const {
  std::vector<std::string> names;
  for (const auto& [name, rows] : rows_) names.push_back(name);
  return names;
}

std::vector<std::string> ClientStore::scalar_names() const {
  std::vector<std::string> names;
  for (const auto& [name, column] : scalars_) names.push_back(name);
  return names;
}

StoreBytes ClientStore::memory_bytes() const {
  StoreBytes bytes;
  for (const auto& [name, rows] : rows_) bytes += rows->memory_bytes();
  for (const auto& [name, column] : scalars_) bytes += column->memory_bytes();
  return bytes;
}

std::int64_t ClientStore::full_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, rows] : rows_) bytes += rows->full_bytes();
  for (const auto& [name, column] : scalars_) bytes += column->full_bytes();
  return bytes;
}

}  // namespace fedhpc
