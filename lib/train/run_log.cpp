// Writes RUN/log.jsonl and the event file, and formats the fields of the progress line.

#include "train/run_log.h"

#include <cmath>

#include "base/atomic_file.h"
#include "base/event_file.h"
#include "base/stopwatch.h"
#include "base/strings.h"

namespace ql::train {

constexpr const char* kScalars[] = {
    "loss",          "perplexity",    "bits_per_character", "bits_per_byte",
    "learning_rate", "gradient_norm", "tokens_per_second"};

// Returns the number; NaN for null, which the log has for a value that was not finite.
static double number_of(const Json& value) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  return std::isfinite(number) ? number : std::nan("");
}

// Returns the record as an event; empty if the record has none of the scalars. The event's time is
// `began` plus the seconds of training, so changes of the system's clock do not affect it.
static std::string event_of(const JsonObject& record, double began) {
  std::vector<Scalar> scalars;
  for (const char* key : kScalars) {
    if (record.has(key)) {
      scalars.push_back({record.text("kind") + "/" + key, number_of(record.at(key))});
    }
  }
  if (scalars.empty()) return "";
  return scalar_event(began + record.real("elapsed"), record.integer("step"), scalars);
}

// Returns true if the settings have all changes of a "resume" record.
static bool has_changes(const Settings& settings, const JsonObject& record) {
  for (const auto& [key, values] : record.at("changed").items()) {
    const auto setting = settings.find(key);
    const Json after = values.is_object() ? values.value("after", Json()) : Json();
    if (setting == settings.end() || setting->second != after) return false;
  }
  return true;
}

RunLog::RunLog(const fs::path& path, std::int64_t step, std::int64_t validation_step,
               double elapsed, std::int64_t divergences, const Settings& settings,
               std::int64_t unlogged_steps)
    : began_(system_seconds() - elapsed) {
  std::vector<std::string> lines = split(fs::exists(path) ? read_file(path) : "", '\n');
  lines.pop_back();  // empty, or an unfinished line
  std::string kept, events;
  try {
    std::vector<bool> known(lines.size());
    // Lines with "resume" records of `step`, as long as no record shows that the checkpoint has
    // their changes.
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string where = fmt::format("{}: line {}", path.string(), i + 1);
      const Json json = parse_json(lines[i], where);
      const JsonObject record(json, where);
      const std::string kind = record.text("kind");
      const std::int64_t at = record.integer("step");
      // A rollback makes the step smaller, so divergences are compared by their number, which only
      // grows.
      known[i] = kind == "divergence"   ? record.integer("number") <= divergences
                 : kind == "resume"     ? at < step
                 : kind == "validation" ? at <= validation_step
                                        : at <= step - unlogged_steps;
      if (kind == "resume" && at == step) {
        open.push_back(i);
        if (has_changes(settings, record)) {
          for (const std::size_t line : std::exchange(open, {})) known[line] = true;
        }
      }
      if (known[i]) events += event_of(record, began_);
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (known[i]) kept += lines[i] + '\n';
    }
  } catch (const FormatError& error) {
    throw FormatError("", error.what(),
                      "remove this line, or rename the file, and a new log begins");
  }
  write_file_atomically(path, kept);
  lines_.emplace(path);
  events_.emplace(start_event_file(path.parent_path(), began_ + elapsed, events));
}

void RunLog::append(const Json& record) {
  lines_->append(record.dump() + '\n');
  events_->append(event_of({record, "log.jsonl"}, began_));
}

void RunLog::sync() {
  lines_->sync();
  events_->sync();
}

std::string unit_of_tokens(const std::string& type) {
  return type == "char" ? "character" : type == "byte" ? "byte" : "";
}

static double bits(double nats) { return nats / std::log(2.0); }

std::string bits_text(double loss, const std::string& unit) {
  return unit.empty() ? "" : fmt::format(", {:.4f} bits per {}", bits(loss), unit);
}

void add_bits(Json& record, double loss, const std::string& unit) {
  if (!unit.empty()) record["bits_per_" + unit] = bits(loss);
}

std::vector<std::string> figures_words(const Figures& figures, std::int64_t steps) {
  std::vector<std::string> words;
  if (figures.seconds_left >= 0) {
    words.push_back(fmt::format("{} left", human_seconds(figures.seconds_left)));
  }
  words.push_back(
      fmt::format("{} tokens/s", with_thousands(std::llround(figures.tokens_per_second))));
  words.push_back(fmt::format("loss {:.3f}", figures.loss));
  if (!figures.unit.empty()) {
    words.push_back(fmt::format("{:.3f} bits per {}", bits(figures.loss), figures.unit));
  }
  const double perplexity = std::exp(figures.loss);
  words.push_back(perplexity < 1e6 ? fmt::format("perplexity {:.1f}", perplexity)
                                   : "perplexity " + human_perplexity(perplexity));
  words.push_back(
      fmt::format("step {} of {}", with_thousands(figures.step), with_thousands(steps)));
  words.push_back(fmt::format("learning rate {:.1e}", figures.learning_rate));
  words.push_back(fmt::format("gradient {:.2f}", figures.gradient_norm));
  return words;
}

}  // namespace ql::train
