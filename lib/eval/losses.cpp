// Computes losses and the likeliest tokens in blocks of rows, and writes the file of losses.

#include "eval/losses.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/process.h"
#include "machine/threads.h"

namespace ql::eval {

// On a GPU at most this many logits exist at a time, except if a single row has more.
constexpr std::int64_t kLogitsPerBlock = std::int64_t{1} << 23;
// On the CPU a thread that looks for the likeliest tokens holds at most this many logits at a time,
// except if a single row has more.
constexpr std::int64_t kLogitsPerPiece = std::int64_t{1} << 20;
// This is the largest number of rows in a piece of work on the CPU. A piece that computes losses
// has no other limit, because the kernels for losses never hold all logits of a row.
constexpr std::int64_t kRowsOfPiece = kernels::kFewSoftmaxRows;
// At most this many likely tokens are held at a time, except if a single block of rows gives more.
constexpr std::int64_t kMostLikely = (std::int64_t{64} << 20) / sizeof(LikelyToken);

static std::int64_t rows_of_block(const nn::Model& model) {
  return std::max<std::int64_t>(1, kLogitsPerBlock / model.network().vocab_size);
}

static std::int64_t rows_of_likely_piece(const nn::Model& model) {
  return std::clamp<std::int64_t>(kLogitsPerPiece / model.network().vocab_size, 1, kRowsOfPiece);
}

// Calls use(first, count) for blocks of rows, or on the CPU for pieces of rows in several threads.
static void for_blocks(const nn::Model& model, const at::Tensor& rows, std::int64_t rows_of_piece,
                       const std::function<void(std::int64_t first, std::int64_t count)>& use) {
  const std::int64_t all = rows.size(0);
  if (machine::uses_kernels(rows)) {
    machine::for_pieces(all, rows_of_piece, use);
    return;
  }
  const std::int64_t block = rows_of_block(model);
  for (std::int64_t row = 0; row < all; row += block) use(row, std::min(block, all - row));
}

// Returns the losses of states [rows, d_model] for targets [rows] as float64 [rows] on the CPU. The
// logits exist only for a block of rows at a time, which bounds their memory for any vocabulary.
static at::Tensor losses_in_blocks(const nn::Model& model, const at::Tensor& states,
                                   const at::Tensor& targets) {
  at::Tensor losses = at::empty({states.size(0)}, at::kDouble);
  const auto use = [&](std::int64_t first, std::int64_t count) {
    losses.narrow(0, first, count)
        .copy_(model
                   .losses(states.narrow(0, first, count).unsqueeze(0),
                           targets.narrow(0, first, count).unsqueeze(0).to(states.device()))
                   .flatten());
  };
  // for_blocks() would use only one thread for this few rows.
  if (machine::uses_kernels(states) && states.size(0) <= kRowsOfPiece) {
    use(0, states.size(0));
  } else {
    for_blocks(model, states, kRowsOfPiece, use);
  }
  return losses;
}

// Returns the ids of the `top` largest values along the last dimension, the largest first, and the
// lowest ids of equal values.
static at::Tensor likeliest_ids(const at::Tensor& logs, std::int64_t top) {
  if (top == 1) return logs.argmax(-1, true);      // the first of equal values
  const auto [values, ids] = at::topk(logs, top);  // any of equal values
  const at::Tensor candidates = logs.ge(values.narrow(-1, top - 1, 1)).sum(-1);
  if (!candidates.gt(top).any().item<bool>()) return ids;
  return std::get<1>(at::sort(logs, /*stable=*/true, -1, /*descending=*/true)).narrow(-1, 0, top);
}

// Orders neighbours of equal probability by their ids. The tokens are sorted by probability.
static void order_equal_values(LikelyToken* begin, LikelyToken* end) {
  for (LikelyToken *first = begin, *next = begin; first != end; first = next) {
    next = std::find_if(first + 1, end, [&](const LikelyToken& token) {
      return token.log_probability != first->log_probability;
    });
    std::sort(first, next, [](const LikelyToken& a, const LikelyToken& b) { return a.id < b.id; });
  }
}

std::vector<LikelyToken> likeliest_in_blocks(const nn::Model& model, const at::Tensor& states,
                                             std::int64_t top) {
  std::vector<LikelyToken> likeliest(static_cast<std::size_t>(states.size(0) * top));
  if (top == 0) return likeliest;
  for_blocks(
      model, states, rows_of_likely_piece(model), [&](std::int64_t first, std::int64_t count) {
        const at::Tensor logs =
            model.log_probabilities(states.narrow(0, first, count).unsqueeze(0));
        at::Tensor ids = likeliest_ids(logs, top);
        const at::Tensor values = logs.gather(-1, ids).to(at::kCPU, at::kDouble).contiguous();
        ids = ids.to(at::kCPU).contiguous();
        for (std::int64_t i = 0; i < count * top; ++i) {
          likeliest[static_cast<std::size_t>(first * top + i)] = {ids.data_ptr<std::int64_t>()[i],
                                                                  values.data_ptr<double>()[i]};
        }
        for (std::int64_t row = first; row < first + count; ++row) {
          LikelyToken* const of_row = likeliest.data() + row * top;
          order_equal_values(of_row, of_row + top);
        }
      });
  return likeliest;
}

std::int64_t rows_of_likeliest(const nn::Model& model, const at::Tensor& states, std::int64_t top) {
  const std::int64_t piece =
      machine::uses_kernels(states) ? rows_of_likely_piece(model) : rows_of_block(model);
  return top == 0 ? states.size(0) : std::max<std::int64_t>(1, kMostLikely / top / piece) * piece;
}

void add_losses(ScoredTargets targets, const EvaluationOptions& options, Evaluation& result) {
  const std::int64_t skipped =
      std::clamp<std::int64_t>(options.first_target - targets.position, 0, targets.count);
  targets.position += skipped;
  targets.ids += skipped;
  targets.losses += skipped;
  targets.count -= skipped;
  targets.likeliest += skipped * targets.top;
  for (std::int64_t i = 0; i < targets.count; ++i) {
    require_finite(targets.losses[i], options.model, targets.position + i);
    result.add(targets.losses[i]);
    if (!options.unknown || targets.ids[i] != static_cast<std::int64_t>(*options.unknown)) {
      result.known.add(targets.losses[i]);
    }
  }
  for (std::int64_t i = 0; i < targets.count * targets.top; ++i) {
    require_finite(targets.likeliest[i].log_probability, options.model,
                   targets.position + i / targets.top);
  }
  if (options.sink && targets.count > 0) options.sink(targets);
}

void score_states(const nn::Model& model, const at::Tensor& states,
                  const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& positions,
                  const EvaluationOptions& options, Evaluation& result) {
  const at::Tensor losses = losses_in_blocks(model, states, at::tensor(ids));
  const std::int64_t* const position = positions.data();
  const std::int64_t rows = states.size(0);
  const std::int64_t most = rows_of_likeliest(model, states, options.top);
  for (std::int64_t block = 0; block < rows; block += most) {
    const std::int64_t end_of_block = std::min(rows, block + most);
    const std::vector<LikelyToken> likeliest =
        likeliest_in_blocks(model, states.narrow(0, block, end_of_block - block), options.top);
    for (std::int64_t first = block, end; first < end_of_block; first = end) {
      for (end = first + 1; end < end_of_block && position[end] == position[end - 1] + 1;) ++end;
      add_losses({position[first], ids.data() + first, losses.data_ptr<double>() + first,
                  end - first, likeliest.data() + (first - block) * options.top, options.top},
                 options, result);
    }
    check_for_stop();
  }
}

LossFile::LossFile(const std::string& path, std::int64_t targets)
    : output_(path, /*binary=*/true, "--per-token"),
      bytes_(kBytesOfLoss * static_cast<std::size_t>(targets), '\0') {}

void LossFile::put(std::int64_t position, const double* losses, std::int64_t count) {
  const auto targets = static_cast<std::int64_t>(bytes_.size() / kBytesOfLoss);
  if (position < 1 || count < 0 || position - 1 > targets - count) {
    throw std::out_of_range("losses outside the stream");
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto loss = static_cast<float>(losses[i]);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &loss, sizeof bits);
    store_little_endian(&bytes_[kBytesOfLoss * static_cast<std::size_t>(position - 1 + i)], bits);
  }
}

void LossFile::commit() {
  output_.write(bytes_);
  output_.close();
}

}  // namespace ql::eval
