#include "train/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/number.h"
#include "net/context.h"
#include "train/slices.h"

namespace ql::train {
namespace {

std::string lengths_text(const net::Network& network, const net::Lengths& lengths) {
  std::string text = fmt::format("segment {}, memory {}", lengths.segment, lengths.memory);
  if (lengths.compressed_memory > 0) {
    text += fmt::format(", compressed memory {}", lengths.compressed_memory);
  }
  const net::ContextLength context = net::exact_context(network, lengths);
  return text + fmt::format(": context of {} to {} tokens", with_thousands(context.minimum),
                            with_thousands(context.maximum));
}

}  // namespace

std::vector<std::string> figures_words(const Figures& figures, std::int64_t steps) {
  std::vector<std::string> words;
  if (figures.seconds_left >= 0) {
    words.push_back(fmt::format("{} left", human_seconds(figures.seconds_left)));
  }
  words.push_back(
      fmt::format("{} tokens/s", with_thousands(std::llround(figures.tokens_per_second))));
  words.push_back(fmt::format("loss {:.3f}", figures.loss));
  const double perplexity = std::exp(figures.loss);
  words.push_back(perplexity < 1e6 ? fmt::format("perplexity {:.1f}", perplexity)
                                   : "perplexity " + human_perplexity(perplexity));
  words.push_back(
      fmt::format("step {} of {}", with_thousands(figures.step), with_thousands(steps)));
  words.push_back(fmt::format("learning rate {:.1e}", figures.learning_rate));
  words.push_back(fmt::format("gradient {:.2f}", figures.gradient_norm));
  return words;
}

std::vector<std::string> network_lines(const net::Network& network, std::int64_t parameters) {
  std::string layers = fmt::format("{} layers", network.layers());
  if (network.scales.size() > 1 || network.output_layers > 0) {
    layers += fmt::format(" (scales {}, output {})", fmt::join(network.scales, ","),
                          network.output_layers);
  }
  return {fmt::format("{}: {}, d_model {}, vocabulary {}, {} parameters",
                      to_text(network.architecture), layers, network.d_model,
                      with_thousands(network.vocab_size), with_thousands(parameters)),
          lengths_text(network, network.lengths)};
}

std::vector<std::string> schedule_lines(const TrainingConfig& config, const Streams& streams,
                                        const DataIdentity& data, const DataIdentity& validation) {
  const double epochs =
      static_cast<double>(config.steps) / static_cast<double>(streams.steps_per_epoch());
  const std::string budget =
      config.minutes > 0 ? fmt::format(" or {} minutes", config.minutes) : std::string();
  return {
      fmt::format("data {}: {} tokens in {} rows of {}", data.words(), with_thousands(data.tokens),
                  streams.batch(), with_thousands(streams.row_tokens())),
      fmt::format("validation {}: {} tokens", validation.words(),
                  with_thousands(validation.tokens)),
      fmt::format("{} steps{} of {} tokens ({:.1f} epochs)", with_thousands(config.steps), budget,
                  with_thousands(streams.batch() * streams.segment()), epochs)};
}

std::string slices_line(const TrainingConfig& config) {
  const std::vector<Slice> slices = split_rows(config.batch, config.slices, config.passes);
  std::int64_t rows = 0;
  std::size_t passes = 0;
  for (const Slice& slice : slices) {
    rows = std::max(rows, slice.back().first + slice.back().count - slice.front().first);
    passes = std::max(passes, slice.size());
  }
  return fmt::format("{} slice{} of up to {} row{}, each in {} pass{}", slices.size(),
                     slices.size() == 1 ? "" : "s", rows, rows == 1 ? "" : "s", passes,
                     passes == 1 ? "" : "es");
}

std::string memory_line(const MemoryEstimate& memory) {
  return fmt::format(
      "memory estimated: {} ({} for weights and optimizer, {} for memories, {} for data; then {} "
      "for "
      "gradients and {} from forward to backward, or {} for validation)",
      human_bytes(memory.total()), human_bytes(memory.parameters), human_bytes(memory.memories),
      human_bytes(memory.data), human_bytes(memory.gradients), human_bytes(memory.activations),
      human_bytes(memory.validation));
}

}  // namespace ql::train
