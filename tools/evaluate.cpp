// Computes the perplexity of checkpoints on packed data or a token stream. qleval becomes this
// program (tools/qleval.cpp).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/common_options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/rows.h"
#include "base/signals.h"
#include "base/tool.h"
#include "eval/report.h"
#include "eval/study.h"
#include "in_processes.h"
#include "machine/device.h"
#include "machine/process_group.h"
#include "machine/threads.h"
#include "shard/manifest.h"
#include "shard/token_stream.h"
#include "tables.h"

namespace {

// On a terminal these come before the others.
const std::vector<std::string> kFirstColumns{"checkpoint",      "data",         "segment",
                                             "memory",          "context",      "perplexity",
                                             "standard_error",  "targets",      "tokens_per_second",
                                             "word_perplexity", "bits_per_byte"};

// --reset is a number of tokens or a kind of unit, and --begin the token before such a unit.
void read_reset(const ql::Options& options, ql::eval::StudyOptions& study) {
  if (options.has("reset")) {
    const std::string reset = options.text("reset");
    const std::optional<std::int64_t> tokens = ql::parse_integer(reset);
    if (tokens && *tokens > 0 && *tokens <= std::int64_t{1} << 30) {
      study.reset = *tokens;
    } else if (reset == "line" || reset == "doubled-line" || reset == "document") {
      study.alone = ql::value_named<ql::eval::Unit>(reset, "--reset");
    } else {
      throw ql::UsageError(
          "--reset", fmt::format("expected 1 to 1073741824, line, doubled-line or document, found "
                                 "'{}'",
                                 reset));
    }
  }
  if (!options.has("begin")) return;
  const std::string begin = options.text("begin");
  const std::optional<std::int64_t> id = ql::parse_integer(begin);
  if (!study.alone) {
    throw ql::UsageError("--begin", "is the token before a unit that is read alone",
                         "add --reset line or --reset document, or leave it out");
  }
  if (begin == "none") {
    study.begin.none = true;
  } else if (id && *id >= 0 && *id < ql::net::kMaxVocabulary) {
    study.begin.id = static_cast<ql::shard::TokenId>(*id);
  } else {
    throw ql::UsageError("--begin",
                         fmt::format("expected a token's id or none, found '{}'", begin));
  }
}

ql::eval::StudyOptions study_options(const ql::Options& options, ql::machine::ProcessGroup* group) {
  ql::eval::StudyOptions study;
  study.checkpoints = options.texts("model");
  study.data = options.texts("data");
  for (const std::string& word : options.positional()) {
    // A shell makes one -m and many words of `-m runs/*/best`.
    const bool is_model = !study.checkpoints.empty() && ql::shard::is_checkpoint(word);
    (is_model ? study.checkpoints : study.data).push_back(word);
  }
  if (options.has("unigram")) study.unigram = options.text("unigram");
  study.segments = options.integers("segment");
  study.memories = options.integers("memory");
  study.compressed_memories = options.integers("compressed-memory");
  // Columns are read side by side step by step; layer by layer there is one stream.
  study.batch = options.text("method") == "stepwise" ? options.integer("batch") : 0;
  study.chunk = options.integer("chunk");
  study.stride = options.has("stride") ? options.integer("stride") : 0;
  read_reset(options, study);
  study.group = group;
  study.device = ql::machine::find_device(options.text("device"), group);
  study.precision = ql::machine::set_up_precision(
      study.device,
      ql::value_named<ql::machine::Precision>(options.text("precision"), "--precision"), group);
  study.top = options.has("top") ? options.integer("top") : 0;
  if (options.has("per-token")) study.loss_file = options.text("per-token");
  if (options.has("attention")) {
    if (options.text("attention") == "-") {
      throw ql::UsageError("--attention", "standard output has the table of perplexities",
                           "give the name of a file");
    }
    study.attention_file = options.text("attention");
  }
  return study;
}

void check(const ql::eval::StudyOptions& study) {
  if (study.data.empty()) {
    throw ql::UsageError("", "no data to score",
                         "give a folder that qlbin packed, or - for a token stream");
  }
  for (const std::string& name : study.data) {
    // Without a -m there may be only this one.
    if (study.checkpoints.empty() && ql::shard::is_checkpoint(name)) {
      throw ql::UsageError(name, "a checkpoint, where data is expected",
                           fmt::format("give it with -m: -m {}", name));
    }
  }
  if (study.checkpoints.empty() && !study.unigram) {
    throw ql::UsageError("", "nothing to evaluate", "give --model CHECKPOINT or --unigram DIR");
  }
  const auto streams = std::count(study.data.begin(), study.data.end(), "-");
  if (streams + (study.unigram == "-" ? 1 : 0) > 1) {
    throw ql::UsageError("--data", "standard input can be read only once");
  }
}

// Refuses evaluations that several processes cannot share.
void check_processes(const ql::Options& options, const ql::eval::StudyOptions& study) {
  if (study.group == nullptr) return;
  for (const char* other : {"per", "per-token", "attention", "unigram", "stride", "reset"}) {
    if (options.has(other)) {
      throw ql::UsageError(fmt::format("--{}", other), "is the work of one process",
                           "run it without a launcher");
    }
  }
  if (std::any_of(study.data.begin(), study.data.end(), ql::shard::names_stream)) {
    throw ql::UsageError("--data", "several processes cannot share a token stream",
                         "pack the stream with qlbin first");
  }
}

// Prints one row for every line, document or token on standard output, and the table on standard
// error if somebody looks there.
void score_units(const ql::Options& options, const ql::eval::StudyOptions& study) {
  ql::OutputStream out(/*binary=*/false);
  const bool json = options.text("format") == "json";
  ql::TableText table = ql::table_of(options, {});
  const auto write = [&](const ql::Json& of_unit) {
    out.write(json ? ql::json_line(of_unit) + "\n" : table.lines(of_unit));
  };
  const auto unit = ql::value_named<ql::eval::Unit>(options.text("per"), "--per");
  const auto write_unit = [&](const ql::eval::UnitSum& sum) {
    write(ql::eval::unit_row(sum));
    out.flush();
  };
  const auto write_tokens = [&](const ql::eval::ScoredTargets& targets,
                                const ql::eval::TokenTexts& texts) {
    for (std::int64_t i = 0; i < targets.count; ++i) {
      write(ql::eval::token_row(targets, i, texts));
      ql::check_for_stop();  // with --top the rows of a chunk take minutes
    }
    out.flush();
  };
  const ql::Json row = unit == ql::eval::Unit::kToken
                           ? ql::eval::run_token_study(study, write_tokens)
                           : ql::eval::run_unit_study(study, unit, write_unit);
  out.close();
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (!options.flag("summary") && (!terminal || options.flag("quiet"))) return;
  ql::TableText summary("", terminal, kFirstColumns);
  std::fputs((json ? ql::json_line(row) + "\n" : summary.lines(row)).c_str(), stderr);
}

void evaluate(const ql::Options& options, ql::machine::ProcessGroup* group) {
  const ql::eval::StudyOptions study = study_options(options, group);
  check(study);
  check_processes(options, study);
  if (options.has("per")) {
    ql::machine::set_up_threads(static_cast<int>(options.integer("threads")), group);
    score_units(options, study);
    return;
  }
  if (!study.checkpoints.empty()) {
    ql::machine::set_up_threads(static_cast<int>(options.integer("threads")), group);
  }

  std::optional<ql::OutputStream> out;
  if (study.loss_file != "-") out.emplace(/*binary=*/false);
  const bool silent = group != nullptr && !group->is_first();
  const auto print = [&out, silent](const std::string& text) {
    if (silent) return;
    if (out) {
      out->write(text);
      out->flush();
    } else {
      std::fputs(text.c_str(), stderr);
    }
  };
  const bool json = options.text("format") == "json";
  ql::TableText table = ql::table_of(options, kFirstColumns);
  bool first = true;
  ql::eval::run_study(study, [&](const ql::Json& row) {
    print(json ? (first ? "[\n" : ",\n") + ql::json_line(row) : table.lines(row));
    first = false;
  });
  if (json) print("\n]\n");
  if (out) out->close();
}

void run(const ql::Options& options) { run_in_processes(options, evaluate); }

}  // namespace

int main(int argc, char** argv) { return ql::run_tool(qleval_table, argc, argv, run); }
