// Reads short sequences in pieces of similar lengths.

#include "eval/short_sequences.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "eval/chunk_size.h"
#include "machine/threads.h"
#include "nn/decode.h"

namespace ql::eval {

// A piece of work has at most this many states, unless one sequence has more. Short pieces would
// leave a GPU idle.
constexpr std::int64_t kStatesOfPiece = 512, kStatesOfGpuPiece = 8192;

void read_side_by_side(const nn::ModelAtLengths& model, std::optional<shard::TokenId> begin,
                       std::vector<ShortSequence> sequences, at::Tensor& states) {
  if (sequences.empty()) return;
  const c10::Device device = states.device();
  // A memory of zeros has nothing to forget where a document begins. With an offset that no memory
  // reaches the step does not forget it, which would copy it for each sequence.
  constexpr std::int64_t kFarFromStart = std::int64_t{1} << 40;
  nn::DecodeState root(model.geometry(), model.start_memory(1), 1, model.model().options(),
                       kFarFromStart);
  const std::int64_t read = begin ? 1 : 0;
  at::Tensor of_begin;
  if (begin) {
    of_begin = model.forward_next(
        at::full({1, 1}, static_cast<std::int64_t>(*begin), at::kLong).to(device), root);
  }
  // Sequences of a piece have similar lengths, because they are padded to the longest of them.
  std::stable_sort(
      sequences.begin(), sequences.end(),
      [](const ShortSequence& a, const ShortSequence& b) { return a.length < b.length; });
  const auto piece = [&](std::int64_t first, std::int64_t count) {
    const at::NoGradGuard no_gradient;
    const ShortSequence* const of_piece = sequences.data() + first;
    const std::int64_t length = of_piece[count - 1].length;
    at::Tensor read_states = begin ? of_begin.expand({count, 1, -1}) : at::Tensor();
    if (length > read) {
      const at::Tensor tokens = at::zeros({count, length - read}, at::kLong);
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy(of_piece[i].inputs + read, of_piece[i].inputs + of_piece[i].length,
                  tokens[i].data_ptr<std::int64_t>());
      }
      nn::DecodeState streams = root.shared(count);
      const at::Tensor next =
          model.forward_next(tokens.to(device), streams, /*batch_invariant=*/false);
      read_states = begin ? at::cat({read_states, next}, 1) : next;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const ShortSequence& sequence = of_piece[i];
      const std::int64_t wanted = sequence.length - sequence.first;
      states.narrow(0, sequence.row, wanted)
          .copy_(read_states[i].narrow(0, sequence.first, wanted));
    }
  };
  const bool on_cpu = machine::uses_kernels(states);
  const std::int64_t most = on_cpu ? kStatesOfPiece : kStatesOfGpuPiece;
  // Some ways to compute attention copy the window for each sequence.
  const std::int64_t most_sequences = segments_of_chunk(model);
  std::vector<std::int64_t> ends;  // of the pieces, in sequences
  for (std::size_t i = 0, first = 0; i < sequences.size(); ++i) {
    const auto count = static_cast<std::int64_t>(i + 1 - first);
    if (i > first && (count * sequences[i].length > most || count > most_sequences)) {
      ends.push_back(static_cast<std::int64_t>(i));
      first = i;
    }
  }
  ends.push_back(static_cast<std::int64_t>(sequences.size()));
  const auto pieces = [&](std::int64_t number, std::int64_t count) {
    for (const std::int64_t last = number + count; number < last; ++number) {
      const auto end = ends.begin() + number;
      const std::int64_t first = number > 0 ? *(end - 1) : 0;
      piece(first, *end - first);
    }
  };
  const auto all = static_cast<std::int64_t>(ends.size());
  if (on_cpu) {
    machine::for_pieces(all, 1, pieces);
  } else {
    pieces(0, all);
  }
}

}  // namespace ql::eval
