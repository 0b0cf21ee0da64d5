// Computes the perplexity of checkpoints and of a unigram model on packed data or token streams.
// qleval replaces itself by this program (tools/qleval.cpp).
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/process.h"
#include "base/rows.h"
#include "base/strings.h"
#include "base/tool.h"
#include "eval/report.h"
#include "eval/sweep.h"
#include "machine/device.h"
#include "machine/process_group.h"
#include "machine/threads.h"
#include "result_rows.h"
#include "shard/token_stream.h"
#include "tables.h"

// Reads --reset (a number of tokens, or a kind of unit) and --begin (the token that is read before
// such a unit).
static void read_reset(const ql::Options& options, ql::eval::SweepOptions& sweep) {
  if (options.has("reset")) {
    const std::string reset = options.text("reset");
    if (const auto tokens = ql::parse_integer(reset)) {
      sweep.reset = *tokens;
    } else {
      sweep.alone = ql::value_named<ql::eval::Unit>(reset, "--reset");
    }
  }
  if (!options.has("begin")) return;
  sweep.begin.none = options.text("begin") == "none";
  if (const auto id = ql::parse_integer(options.text("begin"))) {
    sweep.begin.id = static_cast<ql::shard::TokenId>(*id);
  }
}

ql::net::AttentionChange attention_change(const ql::Options& options) {
  ql::net::AttentionChange change;
  if (options.has("clamp-len")) change.clamp_len = options.integer("clamp-len");
  change.same_length = options.flag("same-length");
  return change;
}

static ql::eval::SweepOptions sweep_options(const ql::Options& options,
                                            ql::machine::ProcessGroup& group) {
  ql::eval::SweepOptions sweep;
  sweep.group = &group;
  QlevalInputs inputs = qleval_inputs(options);
  sweep.checkpoints = std::move(inputs.checkpoints);
  sweep.data = std::move(inputs.data);
  if (options.has("unigram")) sweep.unigram = options.text("unigram");
  sweep.lists = {options.integers("segment"), options.integers("memory"),
                 options.integers("compressed-memory")};
  sweep.change = attention_change(options);
  sweep.chunk = options.integer("chunk");
  sweep.stride = options.has("stride") ? options.integer("stride") : 0;
  read_reset(options, sweep);
  sweep.device = ql::machine::find_device(options.text("device"), group);
  sweep.precision = ql::machine::set_up_precision(
      sweep.device, options.choice<ql::machine::Precision>("precision"), group);
  sweep.top = options.has("top") ? options.integer("top") : 0;
  if (options.has("per-token")) sweep.loss_file = options.text("per-token");
  if (options.has("attention")) sweep.attention_file = options.text("attention");
  return sweep;
}

// Refuses evaluations that several processes cannot share.
static void check_processes(const ql::Options& options, const ql::eval::SweepOptions& sweep) {
  if (sweep.group->is_single()) return;
  options.refuse({"per", "per-token", "attention", "unigram", "stride", "reset"}, "--{}",
                 "works in a single process only", "run qleval without a launcher");
  if (std::any_of(sweep.data.begin(), sweep.data.end(), ql::shard::names_stream)) {
    throw ql::UsageError("--data", "several processes cannot share a token stream",
                         "pack the stream with qlbin first");
  }
}

// Prints one row for every unit of --per on standard output. Prints the summary on standard error
// with --summary, or if standard error is a terminal and --quiet is not given.
static void score_units(const ql::Options& options, const ql::eval::SweepOptions& sweep) {
  ql::ResultRows rows(options, {}, /*first=*/true);
  const auto unit = options.choice<ql::eval::Unit>("per");
  if (unit == ql::eval::Unit::kToken) {
    const std::int64_t id = 0;
    const double loss = 0;
    const std::vector<ql::eval::LikelyToken> likeliest(static_cast<std::size_t>(sweep.top));
    rows.check(ql::eval::token_row({0, &id, &loss, 1, likeliest.data(), sweep.top}, 0, {}));
  } else {
    ql::eval::UnitSum none;
    if (unit == ql::eval::Unit::kWord) none.text = "";
    rows.check(ql::eval::unit_row(none));
  }
  const auto write_unit = [&](const ql::eval::UnitSum& sum) {
    rows.put(ql::eval::unit_row(sum));
    rows.flush();
  };
  const auto write_tokens = [&](const ql::eval::ScoredTargets& targets,
                                const ql::eval::TokenTexts& texts) {
    for (std::int64_t i = 0; i < targets.count; ++i) {
      rows.put(ql::eval::token_row(targets, i, texts));
      ql::check_for_stop();  // with --top, writing the rows of a chunk takes minutes
    }
    rows.flush();
  };
  const ql::Json row = ql::eval::run_unit_sweep(sweep, unit, write_unit, write_tokens);
  rows.close();
  const std::size_t terminal = ql::terminal_width(STDERR_FILENO);
  if (!options.flag("summary") && (terminal == 0 || options.flag("quiet"))) return;
  ql::TableText summary("", terminal, qleval_first_columns());
  const bool json = options.text("format") == "json";
  ql::write_to_standard_error(json ? ql::json_line(row) + "\n" : summary.lines(row));
}

static void evaluate(const ql::Options& options, ql::machine::ProcessGroup& group) {
  if (options.has("items")) {
    evaluate_items(options, group);
    return;
  }
  const ql::eval::SweepOptions sweep = sweep_options(options, group);
  check_processes(options, sweep);
  if (!sweep.checkpoints.empty()) {
    ql::machine::set_up_threads(static_cast<int>(options.integer("threads")), group);
  }
  if (options.has("per")) {
    score_units(options, sweep);
    return;
  }
  ql::ResultRows rows(options, qleval_first_columns(), group.is_first());
  rows.check(ql::eval::report_row({}, {}, {}));
  ql::eval::run_sweep(sweep, [&](const ql::Json& row) {
    rows.put(row);
    rows.flush();  // the next row may take hours
  });
  rows.close();
}

static void run(const ql::Options& options) {
  ql::machine::run_in_processes(
      std::chrono::seconds(options.integer("timeout")),
      [&](ql::machine::ProcessGroup& group) { evaluate(options, group); });
}

int main(int argc, char** argv) { return ql::run_tool(qleval_table, argc, argv, run); }
