// qleval: perplexity of checkpoints on packed data or a token stream.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/tool.h"
#include "eval/report.h"
#include "eval/study.h"
#include "nn/threads.h"
#include "qleval_table.h"

namespace {

ql::eval::StudyOptions study_options(const ql::Options& options) {
  ql::eval::StudyOptions study;
  study.checkpoints = options.texts("model");
  study.data = options.texts("data");
  if (options.has("unigram")) {
    study.unigram = options.text("unigram");
  }
  const auto list = [&options](const std::string& name) {
    return options.has(name) ? options.integers(name) : std::vector<std::int64_t>{};
  };
  study.segments = list("segment");
  study.memories = list("memory");
  study.compressed_memories = list("compressed-memory");
  study.batch = options.integer("batch");
  if (options.has("per-token")) {
    study.loss_file = options.text("per-token");
  }
  return study;
}

void check(const ql::eval::StudyOptions& study) {
  if (study.checkpoints.empty() && !study.unigram) {
    throw ql::UsageError("", "nothing to evaluate", "give --model CHECKPOINT or --unigram DIR");
  }
  const auto streams = std::count(study.data.begin(), study.data.end(), "-");
  if (streams + (study.unigram == "-" ? 1 : 0) > 1) {
    throw ql::UsageError("--data", "standard input can be read only once");
  }
}

void evaluate(const ql::Options& options) {
  const ql::eval::StudyOptions study = study_options(options);
  check(study);
  if (!study.checkpoints.empty()) {
    ql::nn::set_up_threads(static_cast<int>(options.integer("threads")));
  }

  std::optional<ql::OutputStream> out;
  if (study.loss_file != "-") {
    out.emplace(/*binary=*/false);
  }
  const auto print = [&out](const std::string& text) {
    if (out) {
      out->write(text);
      out->flush();
    } else {
      std::fputs(text.c_str(), stderr);
    }
  };
  const bool json = options.text("format") == "json";
  bool first = true;
  ql::eval::run_study(study, [&](const ql::Json& row) {
    if (json) {
      print((first ? "[\n" : ",\n") + row.dump(-1, ' ', false, ql::Json::error_handler_t::replace));
    } else {
      print((first ? ql::eval::tsv_header(row) : "") + ql::eval::tsv_line(row));
    }
    first = false;
  });
  if (json) {
    print("\n]\n");
  }
  if (out) {
    out->close();
  }
}

}  // namespace

int main(int argc, char** argv) { return ql::run_tool(qleval_table(), argc, argv, evaluate); }
