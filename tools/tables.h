// Declares the option tables of the tools, and checks options that belong together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"

namespace ql::machine {
class ProcessGroup;
}
namespace ql::net {
struct AttentionChange;
}

// The largest number of tokens, or of samples, that an option of qleval and qlgen takes.
constexpr std::int64_t kLongest = std::int64_t{1} << 30;

ql::ToolTable qltok_table();
ql::ToolTable qlbin_table();
ql::ToolTable qltrain_table();
// Throws UsageError for options that contradict each other.
void check_qltrain(const ql::Options& options);
ql::ToolTable qleval_table();
void check_qleval(const ql::Options& options);  // likewise
// Holds what qleval evaluates, and on which data. Both come from options and from positional
// arguments: a shell expands `-m runs/*/best` to -m with one checkpoint, and further ones without.
struct QlevalInputs {
  std::vector<std::string> checkpoints, data;
};
// Returns --clamp-len and --same-length of qleval.
ql::net::AttentionChange attention_change(const ql::Options& options);
// On a terminal these columns of qleval's table come before the others.
std::vector<std::string> qleval_first_columns();
QlevalInputs qleval_inputs(const ql::Options& options);
// Makes standard input a pipe with the encoded items of --items, a JSON object a line, which
// another process writes for each checkpoint (tools/pipe_items.cpp). tools/item_records.h reads
// them.
void pipe_items(const ql::Options& options, const std::vector<std::string>& checkpoints);
// Scores these items, and prints their rows or table. The processes of a group share the items.
void evaluate_items(const ql::Options& options, ql::machine::ProcessGroup& group);
ql::ToolTable qlctx_table();
ql::ToolTable qlgen_table();
void check_qlgen(const ql::Options& options);  // likewise
