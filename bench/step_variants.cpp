#include "step_variants.hpp"

#include <numeric>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

#include "fedhpc/math/products.hpp"

// BLAS, column-major.
extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
                       const int* k, const float* alpha, const float* a, const int* lda,
                       const float* b, const int* ldb, const float* beta, float* c, const int* ldc);

namespace fedhpc::bench {

namespace {

constexpr float kRate = 1e-9F;  // small: weights must stay finite over many repetitions

/// A row-major matrix with contiguous columns.
struct Matrix {
  float* data;
  std::int64_t rows;
  std::int64_t columns;
};

/// c = alpha op(a) op(b) + beta c by one bare BLAS call.
void blas_product(float alpha, const Matrix& a, Transpose transpose_a, const Matrix& b,
                  Transpose transpose_b, float beta, const Matrix& c) {
  const auto letter = [](Transpose transpose) { return transpose == Transpose::No ? 'N' : 'T'; };
  const auto size = [](std::int64_t value) { return static_cast<int>(value); };
  const char ta = letter(transpose_a);
  const char tb = letter(transpose_b);
  const int inner = size(transpose_a == Transpose::No ? a.columns : a.rows);
  const int m = size(c.columns);
  const int n = size(c.rows);
  const int lda = size(a.columns);
  const int ldb = size(b.columns);
  // A row-major product is the column-major product of the transposes, in the other order.
  sgemm_(&tb, &ta, &m, &n, &inner, &alpha, b.data, &ldb, a.data, &lda, &beta, c.data, &m);
}

void project_product(float alpha, const Matrix& a, Transpose transpose_a, const Matrix& b,
                     Transpose transpose_b, float beta, const Matrix& c) {
  const auto stack = [](const Matrix& m) {
    return MatrixStack{m.data, 0, m.rows, m.columns, m.columns};
  };
  batched_product(at::kFloat, 1, alpha, stack(a), transpose_a, stack(b), transpose_b, beta,
                  stack(c));
}

}  // namespace

std::vector<StepCase> step_cases() {
  return {{"DNN 100", {100}, 1},
          {"DNN 100", {100}, kClients},
          {"DNN 500-200", {500, 200}, 1},
          {"DNN 500-200", {500, 200}, kClients}};
}

StepSetting::StepSetting(StepCase chosen) : which(std::move(chosen)) {
  DataOptions data;
  data.name = "glyphs";
  data.clients = kClients;
  data.samples_per_client = 250;
  data.train_fraction = 0.8;
  const auto dataset = open_dataset(data);
  const Partition partition = make_partition(data, *dataset);
  std::vector<std::int64_t> clients(kClients);
  std::iota(clients.begin(), clients.end(), 0);
  shard = std::make_unique<Shard>(*dataset, partition, clients, data.standardize, DType::Float32);
  for (const std::int64_t client : clients) {
    require(shard->train_count(client) == kBatch * kSteps, "an epoch has whole batches only");
  }
  ModelOptions options;
  options.hidden = which.hidden;
  model = make_model(options, dataset->shape(), dataset->classes());
  initial = {initial_row(*model->layout(), /*seed=*/1, at::kFloat), model->layout()};
}

ProjectSteps::ProjectSteps(const StepSetting& setting)
    : setting_(setting),
      options_{.batch_size = kBatch, .local_epochs = 1, .lr = 0.05},
      trainer_(*setting.model, *setting.shard, options_, Context{.seed = 1}),
      clients_(kClients) {
  std::iota(clients_.begin(), clients_.end(), 0);
  for (std::int64_t first = 0; first < kClients; first += setting.which.block) {
    blocks_.push_back(setting.initial.replicate(setting.which.block));
  }
}

double ProjectSteps::operator()() {
  ++round_;
  double loss = 0;
  const auto block = static_cast<std::size_t>(setting_.which.block);
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const auto clients = std::span(clients_).subspan(b * block, block);
    for (const TrainStatistics& of_client :
         trainer_.train_(blocks_[b], clients, round_, LocalWork{})) {
      loss += of_client.loss;
    }
  }
  return loss;
}

ProductsAlone::ProductsAlone(const StepSetting& setting, Kernels kernels)
    : kernels_(kernels), block_(setting.which.block) {
  widths_.push_back(setting.model->features());
  widths_.insert(widths_.end(), setting.which.hidden.begin(), setting.which.hidden.end());
  widths_.push_back(setting.model->classes());
  for (std::int64_t first = 0; first < kClients; first += block_) {
    weights_.push_back(setting.initial.replicate(block_).values);
  }
  for (std::size_t l = 0; l < widths_.size(); ++l) {
    values_.push_back(at::randn({block_, kBatch, widths_[l]}));
    gradients_.push_back(l == 0 ? Tensor() : at::randn({block_, kBatch, widths_[l]}));
  }
}

double ProductsAlone::operator()() {
  for (Tensor& rows : weights_) {
    for (std::int64_t s = 0; s < kSteps; ++s) {
      for (std::int64_t c = 0; c < block_; ++c) {
        step(rows.data_ptr<float>() + c * rows.stride(0), c);
      }
    }
  }
  return weights_.back().const_data_ptr<float>()[0];
}

void ProductsAlone::step(float* row, std::int64_t c) {
  const auto product = kernels_ == Kernels::Blas ? blas_product : project_product;
  const auto of = [c](const Tensor& stack) {
    return Matrix{stack.data_ptr<float>() + c * stack.stride(0), stack.size(1), stack.size(2)};
  };
  float* weight = row;
  for (std::size_t l = 0; l + 1 < widths_.size(); ++l) {
    const Matrix w{weight, widths_[l + 1], widths_[l]};
    // Y = X W^T
    product(1, of(values_[l]), Transpose::No, w, Transpose::Yes, 0, of(values_[l + 1]));
    weight += w.rows * w.columns + w.rows;  // the bias follows
  }
  for (std::size_t l = widths_.size() - 1; l-- > 0;) {
    weight -= widths_[l] * widths_[l + 1] + widths_[l + 1];
    const Matrix w{weight, widths_[l + 1], widths_[l]};
    const Matrix dy = of(gradients_[l + 1]);
    // dX = dY W, W <- W - lr dY^T X
    if (l > 0) product(1, dy, Transpose::No, w, Transpose::No, 0, of(gradients_[l]));
    product(-kRate, dy, Transpose::Yes, of(values_[l]), Transpose::No, 1, w);
  }
}

}  // namespace fedhpc::bench
