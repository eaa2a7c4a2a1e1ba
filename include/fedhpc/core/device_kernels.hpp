#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "fedhpc/core/range.hpp"

// What this project computes on a GPU by kernels of its own: arguments are plain numbers and
// addresses, so that neither a kernel's source needs LibTorch's headers nor a caller CUDA's.
//
// Every address is one of device memory, every stride counts values of the argument's type, and
// columns of rows are contiguous. A call enqueues its work on the calling thread's current stream
// and returns; it neither waits nor allocates, so that it can be captured.

namespace fedhpc {

/// Number type of weights, data and activations.
enum class DType { Float32, Float64 };

/// How float32 products are taken (train.precision); float64 ones are always exact to rounding.
enum class Precision {
  Fp32,  ///< float32 throughout
  Tf32,  ///< factors rounded to 10 bits of fraction, sums in float32
  Bf16   ///< factors rounded to bfloat16, sums in float32
};

/// Matrices one for each client, row-major.
struct DeviceMatrices {
  void* data = nullptr;
  std::int64_t stack_stride = 0;  ///< from one client's to the next; 0: the same for all
  std::int64_t row_stride = 0;
  bool transposed = false;  ///< op(X) = X^T; never of a result
};

/// result[c] = alpha op(a[c]) op(b[c]) + beta result[c], [rows, columns], over `inner`. With beta =
/// 0 the old result is not read.
struct DeviceProduct {
  DType type;
  Precision precision = Precision::Fp32;
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  double alpha = 1;
  double beta = 0;
  DeviceMatrices a;
  DeviceMatrices b;
  DeviceMatrices result;
};

/// Activations [C, B, width]: values of sample b of client c start at c client_stride + b
/// sample_stride.
struct DeviceStack {
  void* data = nullptr;
  std::int64_t clients = 0;
  std::int64_t batch = 0;
  std::int64_t width = 0;
  std::int64_t client_stride = 0;
  std::int64_t sample_stride = 0;
};

/// Columns that belong to one client of rows [C, P]: they start at data + c stride.
struct DeviceColumns {
  void* data = nullptr;
  std::int64_t stride = 0;
};

/// out = keep out + scale gradient; with keep = 0 `out` is not read.
struct DeviceSink {
  DeviceColumns out;
  double scale = 1;
  double keep = 0;
};

/// A sample's way into a batch: its row in the source and, of an image, the corner of the crop in
/// the padded image and whether it is mirrored ({4, 4, 0}: the image itself).
struct DevicePick {
  std::int64_t row;  ///< negative: there is no such sample, nothing is written
  std::int32_t crop_row;
  std::int32_t crop_column;
  std::int32_t flip;
  std::int32_t unused;
};

/// Gathers batches: sample b of client c of the stack becomes picks[(step clients + c) batch + b]
/// of the source, standardised, with its label.
struct DeviceGather {
  DType type;
  bool pixels = false;                          ///< the source is [S, width] uint8, else of `type`
  const void* source = nullptr;                 ///< [S, width]
  const std::int64_t* source_labels = nullptr;  ///< [S]
  /// [steps, pick_clients, pick_batch]; null: sample b of client 0 is row first + b, whole
  const DevicePick* picks = nullptr;
  std::int64_t pick_clients = 0;
  std::int64_t pick_batch = 0;
  const std::int64_t* step = nullptr;  ///< one number
  std::int64_t first = 0;
  /// Pixel x becomes mean ? (x - mean[d]) factor[d] : table[x], in float64, rounded.
  const double* table = nullptr;  ///< [256]
  const double* mean = nullptr;   ///< [width] or null
  const double* factor = nullptr;
  std::int64_t channels = 0;  ///< of images that are cropped, else 0
  std::int64_t height = 0;
  std::int64_t image_width = 0;
  DeviceStack inputs;
  std::int64_t* labels = nullptr;  ///< [C, B]
  std::int64_t label_stride = 0;
};

/// Softmax cross-entropy as training/loss.hpp has it: loss[c] += the batch's sum; the gradient of
/// the mean where `gradient.data` is not null.
struct DeviceCrossEntropy {
  DType type;
  DeviceStack logits;
  const std::int64_t* labels = nullptr;  ///< [C, B]
  std::int64_t label_stride = 0;
  DeviceStack gradient{};
  double* loss = nullptr;  ///< [C]
};

/// Per sample of one batch: 1 or 0 for correct or not, and the loss.
struct DeviceScore {
  DType type;
  DeviceStack logits;                    ///< of one client
  const std::int64_t* labels = nullptr;  ///< [B]
  double* correct = nullptr;             ///< [B]
  double* loss = nullptr;                ///< [B]
};

/// y = max(x, 0), and its way back: dx = dy where y > 0, else 0.
struct DeviceRelu {
  DType type;
  DeviceStack x;
  DeviceStack y;
};
struct DeviceReluGradient {
  DType type;
  DeviceStack y;
  DeviceStack dy;
  DeviceStack dx;
};

/// y[c, b, k places + p] += bias[c, k]
struct DeviceBias {
  DType type;
  DeviceStack y;
  DeviceColumns bias;
  std::int64_t places = 1;
};
/// The sums of dy over batch and places of each channel into the sink.
struct DeviceBiasGradient {
  DType type;
  DeviceStack dy;
  std::int64_t places = 1;
  DeviceSink sink;
};

/// [channels, height, width] of one sample.
struct DeviceImage {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};
struct DeviceWindow {
  std::int64_t size = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};

/// columns[c, (i, ky, kx), (b, oy, ox)] = x[c, b, i, oy stride + ky - padding, ...], 0 outside; and
/// its adjoint, the sum over the windows that hold a place.
struct DeviceUnfold {
  DType type;
  DeviceStack x;
  DeviceImage in;
  DeviceImage out;
  DeviceWindow window;
  void* columns = nullptr;  ///< contiguous [C, in.channels size^2, B places]
};

/// channel_major[c, k, (b, p)] = stack[c, b, k places + p] (To), or back (From), there with bias[c,
/// k] added where it is not null.
struct DeviceTurn {
  DType type;
  DeviceStack stack;
  std::int64_t places = 1;
  void* channel_major = nullptr;  ///< contiguous [C, channels, B places]
  DeviceColumns bias{};
};

/// Max pooling: the place of each maximum in its plane goes to `places` (int32, strides its own)
/// where that is not null; NaN wins. Average pooling is by rectangles: output (oy, ox) is the mean
/// over rows [row_ranges[oy]) and columns [column_ranges[ox]).
struct DeviceMaxPool {
  DType type;
  DeviceStack x;  ///< or its gradient
  DeviceStack y;  ///< or its gradient
  DeviceStack places{};
  DeviceImage in;
  DeviceImage out;
  DeviceWindow window;
};
struct DeviceAveragePool {
  DType type;
  DeviceStack x;
  DeviceStack y;
  DeviceImage in;
  const Range* rows = nullptr;     ///< [out height]
  const Range* columns = nullptr;  ///< [out width]
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;
};

/// Batch norm and what follows it, as models/image_layers.hpp has it. Parameters lie one after the
/// other in a client's columns: gamma, beta, running mean, running variance.
struct DeviceBatchNorm {
  enum class Then { Nothing, Relu, ReluMaxPool };
  DType type;
  Then then = Then::Nothing;
  bool training = false;
  DeviceImage in;
  double epsilon = 0;
  double momentum = 0;
  DeviceStack x;
  DeviceStack y;  ///< or, on the way back, its gradient
  DeviceColumns parameters;
  double* saved = nullptr;  ///< [C, 2, channels]: mean and 1 / deviation; when training
};
struct DeviceBatchNormGradient {
  DeviceBatchNorm norm;  ///< y: the gradient
  DeviceStack dx{};      ///< data null: not wanted
  DeviceSink sink{};     ///< of gamma and beta; out.data null: not wanted
};

/// out[c] = keep out[c] + scale values[c] for [rows, columns] columns.
struct DeviceAccumulate {
  DType type;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DeviceColumns values;
  DeviceSink sink;
};

/// mu/2 |w - c|^2 + gamma rho log cosh(w / rho) of each weight.
struct DevicePenalty {
  double mu = 0;
  double gamma = 0;
  double rho = 1;
  DeviceColumns centre{};  ///< read where mu is above 0
};

/// One step of a row optimizer (training/row_optimizer.hpp) of rows [C, ...] in some ranges of
/// columns, on gradients g, or 0 where `g.data` is null, plus the penalty's.
struct DeviceStep {
  enum class Rule { Sgd, Momentum, Nesterov, Adam };
  DType type;
  Rule rule = Rule::Sgd;
  std::int64_t rows = 0;
  const Range* ranges = nullptr;  ///< [range_count]
  std::int64_t range_count = 0;
  std::int64_t columns = 0;  ///< P
  DeviceColumns w;
  DeviceColumns g{};
  DeviceColumns states[2]{};
  const double* lr = nullptr;  ///< one number
  double momentum = 0;
  double weight_decay = 0;
  DevicePenalty penalty{};
  std::int64_t* steps = nullptr;  ///< [C] of Adam: taken before this one; advance() counts on
};

/// g += the penalty's gradient at w.
struct DevicePenaltyGradient {
  DType type;
  std::int64_t rows = 0;
  const Range* ranges = nullptr;
  std::int64_t range_count = 0;
  std::int64_t columns = 0;
  DeviceColumns g;
  DeviceColumns w;
  DevicePenalty penalty;
};

/// sums[segments[c], i] += weights[c] rows[c, i], a row of weight 0 not being read, in order of c;
/// sums[s, columns] += the weights.
struct DeviceWeightedSum {
  DType type;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DeviceColumns values;
  const std::int64_t* segments = nullptr;  ///< [rows]
  const double* weights = nullptr;         ///< [rows]
  std::int64_t segment_count = 0;
  double* sums = nullptr;  ///< [segment_count, columns + 1]
};

/// <x_c, x_c> and, unless y.data is null, <x_c, y_c> of columns of rows, in float64, piece by piece
/// of kPiece columns: to sums[k, c, first_piece ..] of [1 or 2, rows, pieces].
struct DeviceRowProducts {
  static constexpr std::int64_t kPiece = 8192;
  static constexpr std::int64_t pieces_of(std::int64_t columns) {
    return (columns + kPiece - 1) / kPiece;
  }

  DType type;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DeviceColumns x;
  DeviceColumns y;
  std::int64_t first_piece = 0;
  std::int64_t pieces = 0;  ///< of a row in all
  double* sums = nullptr;
};

/// sums[r] = the sum of of_pieces[r], [rows, pieces].
struct DevicePieces {
  std::int64_t rows = 0;
  std::int64_t pieces = 0;
  const double* of_pieces = nullptr;
  double* sums = nullptr;
};

/// out[c, o, r] = sum over s of g[c, s, o, r] factor[c, s, r], where g[c, s, o] is s inner_stride
/// behind sample o of client c of `g`.
struct DeviceContraction {
  DType type;
  DeviceStack g;  ///< [C, O, R]
  std::int64_t inner_stride = 0;
  DeviceStack factor;  ///< [C, S, R]
  DeviceStack out;     ///< [C, O, R]
};

/// Enqueued work that can be run again: on the same addresses, with what they hold by then.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;
};

/// The kernels of one process and its device. The real ones come with a module that is loaded when
/// a GPU is asked for; tests have others, from the same sources, on host memory.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  virtual void product(const DeviceProduct&) = 0;
  /// product() with every sum in the order of the inner index: an entry of the result depends, to
  /// the last bit, on its row and column of the factors and not on what is computed beside it.
  virtual void product_in_order(const DeviceProduct&) = 0;
  virtual void gather(const DeviceGather&) = 0;
  virtual void cross_entropy(const DeviceCrossEntropy&) = 0;
  virtual void score(const DeviceScore&) = 0;
  virtual void relu(const DeviceRelu&) = 0;
  virtual void relu_gradient(const DeviceReluGradient&) = 0;
  virtual void add_bias(const DeviceBias&) = 0;
  virtual void bias_gradient(const DeviceBiasGradient&) = 0;
  virtual void unfold(const DeviceUnfold&) = 0;
  virtual void fold(const DeviceUnfold&) = 0;  ///< x becomes the adjoint's image of the columns
  virtual void turn_to(const DeviceTurn&) = 0;
  virtual void turn_from(const DeviceTurn&) = 0;
  virtual void max_pool(const DeviceMaxPool&) = 0;
  virtual void max_pool_gradient(const DeviceMaxPool&) = 0;
  virtual void average_pool(const DeviceAveragePool&) = 0;
  virtual void average_pool_gradient(const DeviceAveragePool&) = 0;
  virtual void batch_norm(const DeviceBatchNorm&) = 0;
  virtual void batch_norm_gradient(const DeviceBatchNormGradient&) = 0;
  virtual void accumulate(const DeviceAccumulate&) = 0;
  virtual void step(const DeviceStep&) = 0;
  virtual void add_penalty_gradient(const DevicePenaltyGradient&) = 0;
  virtual void add_weighted(const DeviceWeightedSum&) = 0;
  virtual void row_products(const DeviceRowProducts&) = 0;
  virtual void add_pieces(const DevicePieces&) = 0;
  virtual void contract(const DeviceContraction&) = 0;
  /// counters[0 .. count) += 1
  virtual void advance(std::int64_t* counters, std::int64_t count) = 0;

  /// Runs `work`, which enqueues kernels and tensor operations, without computing anything, and
  /// gives what was enqueued. Work that waits for the device, or copies from or to pageable host
  /// memory, cannot be captured: that throws.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) = 0;
  /// How LibTorch's own products and convolutions on the device take float32 factors.
  virtual void use_precision(Precision precision) = 0;
  /// From now on an operation that makes the host wait for the device throws, or no longer does.
  virtual void forbid_waiting(bool forbidden) = 0;
  /// A named range on the profiler's time line (NVTX).
  virtual void begin_range(const char* name) = 0;
  virtual void end_range() = 0;
};

/// The module with the kernels and LibTorch's CUDA library, loaded once a process. Throws Error
/// with the reason if this build has none or it cannot be loaded.
DeviceKernels& device_kernels();

}  // namespace fedhpc
