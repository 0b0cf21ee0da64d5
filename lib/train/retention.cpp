#include "train/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/temporary_name.h"
#include "net/state_file.h"

namespace ql::train {
namespace {

constexpr const char* kPrefix = "step-";
constexpr std::size_t kDigits = 8;
// A folder that is being removed has this name in RUN, which nobody takes for a whole checkpoint.
constexpr const char* kRemoved = ".removed";

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw SystemError(path.string(), "remove", error.value());
}

void link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (error) fs::copy_file(from, to, error);
  if (error) throw SystemError(to.string(), "create", error.value());
}

void link_folder(const fs::path& from, const fs::path& to) {
  AtomicFolder atomic(to);
  std::error_code error;
  fs::directory_iterator entry(from, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    link_or_copy(entry->path(), atomic.temporary() / entry->path().filename());
  }
  if (error) throw SystemError(from.string(), "list", error.value());
  atomic.commit();
}

// Lists every name in `run` that begins so; none when there is no such folder.
std::vector<std::string> names_with(const fs::path& run, const std::string& beginning) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(run, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind(beginning, 0) == 0) names.push_back(name);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw SystemError(run.string(), "list", error.value());
  }
  return names;
}

// Returns the step of "step-00001000"; absent for any other name.
std::optional<std::int64_t> step_in(const std::string& name) {
  const std::size_t digits = std::string(kPrefix).size();
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  const auto step = parse_integer(name.substr(digits));
  return step && *step >= 0 && step_folder({}, *step) == name ? step : std::nullopt;
}

// Reads a temporary name of one of RUN's checkpoints; absent for any other name.
std::optional<TemporaryName> temporary_checkpoint(const std::string& file_name) {
  auto temporary = parse_temporary_name(file_name);
  if (temporary && temporary->name != "last" && temporary->name != "best" &&
      !step_in(temporary->name)) {
    temporary.reset();
  }
  return temporary;
}

bool divides(std::int64_t every, std::int64_t step) {
  return every > 0 && step > 0 && step % every == 0;
}

}  // namespace

fs::path step_folder(const fs::path& run, std::int64_t step) {
  return run / fmt::format("{}{:0{}}", kPrefix, step, kDigits);
}

std::optional<std::int64_t> step_of(const fs::path& checkpoint) {
  try {
    const Json state = net::read_state_file(checkpoint);
    return JsonObject(state, checkpoint.string()).integer("step", 0);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::int64_t> kept_steps(const fs::path& run) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_with(run, kPrefix)) {
    if (const auto step = step_in(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<fs::path> newest_checkpoints(const fs::path& run) {
  std::vector<std::pair<std::int64_t, fs::path>> others;
  for (const std::int64_t step : kept_steps(run)) others.emplace_back(step, step_folder(run, step));
  if (const fs::path best = run / "best"; fs::exists(best)) {
    others.emplace_back(step_of(best).value_or(0), best);
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> all;
  if (const fs::path last = run / "last"; fs::exists(last)) all.push_back(last);
  for (auto& [step, folder] : others) all.push_back(std::move(folder));
  return all;
}

fs::path set_last_aside(const fs::path& run) {
  fs::path name = run / "last.damaged";
  for (int number = 2; fs::exists(name); ++number) {
    name = run / fmt::format("last.damaged-{}", number);
  }
  std::error_code error;
  fs::rename(run / "last", name, error);
  if (error) {
    throw SystemError((run / "last").string(), fmt::format("rename to {}", name.string()),
                      error.value());
  }
  return name;
}

void retain(const fs::path& run, std::int64_t step, const Retention& retention) {
  const std::size_t newest = retention.last > 1 ? static_cast<std::size_t>(retention.last) : 0;
  if (newest > 0 || divides(retention.every, step)) {
    link_folder(run / "last", step_folder(run, step));
  }
  std::vector<std::int64_t> steps = kept_steps(run);
  steps.erase(std::upper_bound(steps.begin(), steps.end(), step), steps.end());
  for (std::size_t i = 0; i + newest < steps.size(); ++i) {
    if (!divides(retention.every, steps[i])) remove_checkpoint(step_folder(run, steps[i]));
  }
}

void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path removed = checkpoint.parent_path() / kRemoved;
  remove_tree(removed);
  std::error_code error;
  fs::rename(checkpoint, removed, error);
  if (error == std::errc::no_such_file_or_directory) return;
  if (error) throw SystemError(checkpoint.string(), "remove", error.value());
  remove_tree(removed);
}

void remove_kept(const fs::path& run) {
  for (const std::int64_t step : kept_steps(run)) remove_checkpoint(step_folder(run, step));
}

void put_back_replaced(const fs::path& run) {
  for (const std::string& name : names_with(run, ".")) {
    const auto temporary = temporary_checkpoint(name);
    if (!temporary || !temporary->moved_away || fs::exists(run / temporary->name)) continue;
    std::error_code error;
    fs::rename(run / name, run / temporary->name, error);
    if (error) {
      throw SystemError((run / temporary->name).string(), fmt::format("rename back from {}", name),
                        error.value());
    }
  }
}

void remove_leftovers(const fs::path& run) {
  remove_tree(run / kRemoved);
  for (const std::string& name : names_with(run, ".")) {
    if (temporary_checkpoint(name)) remove_tree(run / name);
  }
}

}  // namespace ql::train
