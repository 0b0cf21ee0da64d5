// Runs qlctx-measure for context lengths, and checks its answer.

#include "base/log.h"
#include "base/process.h"
#include "installed.h"
#include "qlctx_report.h"

namespace ql::ctx {

constexpr const char* kProgram = "qlctx-measure";

// Returns a network that can run: if the vocabulary size is unknown, a small size is chosen. The
// measured context lengths do not depend on this size, or on how the softmax is divided.
static net::Network runnable(net::Network network) {
  if (network.cutoffs_from_data) network.tie_projs.clear();
  network.cutoffs_from_data = false;
  if (network.vocab_size == 0) {
    network.vocab_size = (network.cutoffs.empty() ? 0 : network.cutoffs.back()) + 256;
  }
  return network;
}

static std::vector<std::string> arguments_of(const Request& request) {
  std::vector<std::string> arguments;
  if (!request.checkpoint.empty()) {
    arguments = {"--model=" + request.checkpoint};
  } else {
    net::Network network = runnable(request.network);
    network.lengths = request.lengths.front();
    arguments = {"--network=" + net::network_to_json(network).dump()};
  }
  for (const net::Lengths& lengths : request.lengths) {
    arguments.push_back(fmt::format("--lengths={},{},{}", lengths.segment, lengths.memory,
                                    lengths.compressed_memory));
  }
  if (log_level() == LogLevel::kQuiet) {
    arguments.emplace_back("--quiet");
  } else if (log_level() == LogLevel::kDebug) {
    arguments.emplace_back("--verbose");
  }
  return arguments;
}

static void check_rows(const std::vector<std::vector<std::int64_t>>& rows,
                       const std::vector<net::Lengths>& lengths) {
  const char* remedy = "install this helper program and qlctx of the same version";
  if (rows.size() != lengths.size()) {
    throw FormatError(kProgram,
                      fmt::format("measured {} combinations of lengths, expected {}", rows.size(),
                                  lengths.size()),
                      remedy);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<std::int64_t>(rows[i].size()) != lengths[i].segment) {
      throw FormatError(kProgram,
                        fmt::format("measured {} positions of a segment, expected {}",
                                    rows[i].size(), lengths[i].segment),
                        remedy);
    }
  }
}

std::vector<std::vector<std::int64_t>> measure(const Request& request) {
  std::string output;
  try {
    output = output_of(libexec_program(kProgram), arguments_of(request));
  } catch (const AlreadyReported& failure) {
    // Codes above 128 stand for signals.
    throw AlreadyReported(failure.exit_code() > 128 ? failure.exit_code() : 1);
  }
  const Json json = parse_json(output, kProgram);
  const JsonObject answer(json, kProgram);
  std::vector<std::vector<std::int64_t>> rows;
  std::int64_t streams = 0;
  for (const Json& item : answer.at("rows")) {
    const JsonObject row(item, kProgram);
    rows.push_back(row.integers("lengths"));
    streams += row.integer("streams");
  }
  check_rows(rows, request.lengths);
  log_info("measured by gradients on {} random token streams, with {} weights", streams,
           request.checkpoint.empty() ? "random" : "trained");
  if (request.network.architecture == net::Architecture::kCompressive &&
      request.network.pool == net::Pool::kMostUsed) {
    log_info(
        "with pool most-used, the exact lengths count all evicted states that may be kept, but the "
        "measured lengths count only those that these streams kept");
  }
  return rows;
}

}  // namespace ql::ctx
