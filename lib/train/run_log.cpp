#include "train/run_log.h"

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/event_file.h"
#include "base/event_record.h"
#include "base/file.h"

namespace ql::train {
namespace {

constexpr const char* kScalars[] = {"loss", "perplexity", "learning_rate", "gradient_norm",
                                    "tokens_per_second"};

double system_seconds() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_1970).count();
}

// A number that is not finite becomes null in the log, and is not a number after that.
double number_of(const Json& value) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  return std::isfinite(number) ? number : std::nan("");
}

// Returns the record as an event; empty when it has none of the scalars. The event's time is that
// of a training that began at `began` and never paused. It is steady, whatever is done to the
// system's clock.
std::string event_of(const Json& record, double began) {
  std::vector<Scalar> scalars;
  for (const char* key : kScalars) {
    if (record.contains(key)) {
      const std::string kind = record.at("kind").get<std::string>();
      scalars.push_back({kind + "/" + key, number_of(record[key])});
    }
  }
  if (scalars.empty()) return "";
  const double elapsed = record.contains("elapsed") ? number_of(record["elapsed"]) : 0;
  return scalar_event(began + elapsed, record.at("step").get<std::int64_t>(), scalars);
}

struct Kept {
  std::string lines, events;
};

Kept kept_records(const fs::path& path, std::int64_t step, std::int64_t validation_step,
                  std::int64_t divergences, double began) {
  const std::string text = fs::exists(path) ? read_file(path) : "";
  Kept kept;
  std::size_t begin = 0;
  for (std::int64_t number = 1;; ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) return kept;
    const std::string line = text.substr(begin, end - begin);
    const std::string where = fmt::format("{}: line {}", path.string(), number);
    const Json json = parse_json(line, where);
    const JsonObject record(json, where);
    const std::string kind = record.text("kind");
    const std::int64_t at = record.integer("step");
    // A rollback makes the step smaller; the number of divergences only grows.
    const bool known = kind == "divergence"   ? record.integer("number") <= divergences
                       : kind == "resume"     ? at < step
                       : kind == "validation" ? at <= validation_step
                                              : at <= step;
    if (known) {
      kept.lines += line + '\n';
      kept.events += event_of(json, began);
    }
    begin = end + 1;
  }
}

}  // namespace

RunLog::RunLog(const fs::path& path, std::int64_t step, std::int64_t validation_step,
               double elapsed, std::int64_t divergences)
    : began_(system_seconds() - elapsed) {
  const Kept kept = kept_records(path, step, validation_step, divergences, began_);
  write_file_atomically(path, kept.lines);
  lines_.emplace(path);
  events_.emplace(start_event_file(path.parent_path(), began_ + elapsed, kept.events));
}

void RunLog::append(const Json& record) {
  lines_->append(record.dump() + '\n');
  events_->append(event_of(record, began_));
}

void RunLog::sync() {
  lines_->sync();
  events_->sync();
}

}  // namespace ql::train
