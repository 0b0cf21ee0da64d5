// Locks and clears the folder RUN, and removes old checkpoints.

#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <system_error>

#include "base/atomic_file.h"
#include "base/stopwatch.h"
#include "net/model_file.h"

namespace ql::train {

constexpr const char* kPrefix = "step-";
constexpr std::size_t kDigits = 8;
// A checkpoint that is being removed has this name in RUN, so that it does not count as complete.
constexpr const char* kRemoved = ".removed";

static void remove_tree(const fs::path& path) {
  if (const std::error_code error = ql::remove_tree(path)) {
    throw SystemError(path.string(), "remove", error.value());
  }
}

static void link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (error) fs::copy_file(from, to, error);
  if (error) throw SystemError(to.string(), "create", error.value());
}

void link_checkpoint(const fs::path& from, const fs::path& to) {
  AtomicFolder atomic(to);
  std::error_code error;
  fs::directory_iterator entry(from, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    link_or_copy(entry->path(), atomic.temporary() / entry->path().filename());
  }
  if (error) throw SystemError(from.string(), "list", error.value());
  atomic.commit();
}

// Lists every name in `run` that begins with `beginning`; none if `run` is not a folder.
static std::vector<std::string> names_with(const fs::path& run, const std::string& beginning) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(run, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind(beginning, 0) == 0) names.push_back(name);
  }
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory) {
    throw SystemError(run.string(), "list", error.value());
  }
  return names;
}

// Returns the step of a name such as "step-00001000"; absent for a name of another form.
static std::optional<std::int64_t> step_in(const std::string& name) {
  const std::size_t digits = std::string(kPrefix).size();
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  const auto step = parse_integer(name.substr(digits));
  return step && *step >= 0 && step_folder({}, *step) == name ? step : std::nullopt;
}

// Parses a temporary name of one of RUN's checkpoints; absent for any other name.
static std::optional<TemporaryName> temporary_checkpoint(const std::string& file_name) {
  auto temporary = parse_temporary_name(file_name);
  if (temporary && temporary->name != "last" && temporary->name != "best" &&
      !step_in(temporary->name)) {
    temporary.reset();
  }
  return temporary;
}

// Renames a checkpoint, if it exists, and then removes it. Throws SystemError.
static void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path removed = checkpoint.parent_path() / kRemoved;
  remove_tree(removed);
  std::error_code error;
  fs::rename(checkpoint, removed, error);
  if (error == std::errc::no_such_file_or_directory) return;
  if (error == std::errc::cross_device_link) {
    // OverlayFS cannot rename a folder of a lower layer. Without its state, a checkpoint whose
    // removal is interrupted does not count as complete either.
    remove_tree(checkpoint / "state.json");
    remove_tree(checkpoint);
    return;
  }
  if (error) throw SystemError(checkpoint.string(), "remove", error.value());
  remove_tree(removed);
}

// A checkpoint is renamed before its successor takes its name, unless the file system can exchange
// names. If the successor did not get the name, this gives the name back to the checkpoint. Call
// this before remove_leftovers().
static void put_back_replaced(const fs::path& run) {
  for (const std::string& name : names_with(run, ".")) {
    const auto temporary = temporary_checkpoint(name);
    if (!temporary || !temporary->moved_away || fs::exists(run / temporary->name)) continue;
    std::error_code error;
    fs::rename(run / name, run / temporary->name, error);
    if (error) {
      throw SystemError((run / name).string(), fmt::format("rename to '{}'", temporary->name),
                        error.value());
    }
  }
}

// Removes the temporary folders of a run that was killed while it made, replaced or removed
// RUN/last, RUN/best or RUN/step-...
static void remove_leftovers(const fs::path& run) {
  remove_tree(run / kRemoved);
  for (const std::string& name : names_with(run, ".")) {
    if (temporary_checkpoint(name)) remove_tree(run / name);
  }
}

static bool divides(std::int64_t every, std::int64_t step) {
  return every > 0 && step > 0 && step % every == 0;
}

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
  std::vector<fs::path> all;
  for (const std::string& name : names_with(run, ".")) {
    const auto old = temporary_checkpoint(name);
    if (!old || !old->moved_away || fs::exists(run / old->name)) continue;
    // put_back_replaced() will rename it.
    const fs::path folder = run / name;
    if (old->name == "last") {
      all.push_back(folder);
    } else {
      others.emplace_back(step_of(folder).value_or(0), folder);
    }
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (const fs::path last = run / "last"; fs::exists(last)) all.push_back(last);
  for (auto& [step, folder] : others) all.push_back(std::move(folder));
  return all;
}

fs::path set_aside(const fs::path& path, const std::string& ending) {
  const std::string first = path.string() + ending;
  fs::path name = first;
  for (int number = 2; fs::exists(name); ++number) name = fmt::format("{}-{}", first, number);
  std::error_code error;
  fs::rename(path, name, error);
  if (error) {
    throw SystemError(path.string(), fmt::format("rename to {}", name.string()), error.value());
  }
  return name;
}

void retain(const fs::path& run, std::int64_t step, const Retention& retention,
            std::int64_t previous) {
  const std::size_t newest = retention.last > 1 ? static_cast<std::size_t>(retention.last) : 0;
  if (newest > 0 || divides(retention.every, step)) {
    link_checkpoint(run / "last", step_folder(run, step));
  }
  std::vector<std::int64_t> steps = kept_steps(run);
  steps.erase(std::upper_bound(steps.begin(), steps.end(), step), steps.end());
  const auto own = std::lower_bound(steps.begin(), steps.end(), step);
  const auto abandoned = std::upper_bound(steps.begin(), own, previous);
  for (auto at = abandoned; at != own; ++at) remove_checkpoint(step_folder(run, *at));
  steps.erase(abandoned, own);
  for (std::size_t i = 0; i + newest < steps.size(); ++i) {
    if (!divides(retention.every, steps[i])) remove_checkpoint(step_folder(run, steps[i]));
  }
}

RunFolder::RunFolder(fs::path path, Start start, bool reads_only) : path_(std::move(path)) {
  if (reads_only) return;
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw SystemError(path_.string(), "create the folder", error.value());
  for (const char* name : {"manifest.json", "model.json"}) {
    if (fs::exists(path_ / name)) {
      throw Error(
          path_.string(),
          fmt::format("the folder holds {}, so it seems to be packed data or a checkpoint", name),
          "choose another -o");
    }
  }
  lock();
  write_name();
  for (const fs::path& checkpoint : {last(), best()}) {
    if (start != Start::kForce && fs::is_symlink(fs::symlink_status(checkpoint, error))) {
      throw Error(checkpoint.string(),
                  "is a symbolic link, which the next checkpoint would replace",
                  "move the checkpoint back, or move all of the training's folder to where the "
                  "link leads");
    }
  }
  put_back_replaced(path_);
  if (start == Start::kNew && has_checkpoint()) {
    throw Error(path_.string(), "the folder holds a checkpoint of an earlier training",
                "continue it with --resume, replace it with --force, or choose another -o");
  }
  remove_leftovers(path_);
}

// On NFS the lock of a file is known to all hosts, but that of a folder only to one. Some servers
// have no locks.
void RunFolder::lock() {
  const auto locks = [this](const fs::path& path, int flags) {
    lock_ = Descriptor(path, flags, path.string(), "open for the lock");
    return ::flock(lock_, LOCK_EX | LOCK_NB) == 0;
  };
  const fs::path file = path_ / ".lock";
  // NFS locks only a file that is open for writing, but another user's file may be read-only.
  const bool writable = ::access(file.c_str(), W_OK) == 0 || errno == ENOENT;
  if (locks(file, writable ? O_RDWR | O_CREAT : O_RDONLY)) {
    // Who may write to the folder may also continue the training.
    struct stat folder = {};
    if (::stat(path_.c_str(), &folder) == 0) {
      ::fchmod(lock_, 0600 | (folder.st_mode & 0066));
    }
    return;
  }
  const bool lockless = errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP;
  if (lockless && locks(path_, O_RDONLY | O_DIRECTORY)) return;
  if (errno == EWOULDBLOCK) {
    throw Error(path_.string(), "another training is writing to this folder",
                "wait for it or choose another -o");
  }
  throw SystemError(path_.string(), "lock the folder", errno);
}

// The numbers of files and folders would need no name, but some network file systems change them.
void RunFolder::write_name() {
  // Neither a folder nor another user's file can be cut: then nothing can be compared later.
  if (::ftruncate(lock_, 0) != 0) return;
  const std::string name =
      fmt::format("{} {} {:.6f}\n", this_machine(), ::getpid(), system_seconds());
  try {
    lock_.write(name.data(), name.size(), (path_ / ".lock").string());
    name_in_lock_ = name;
  } catch (const SystemError&) {
    // The disk is full.
  }
}

void RunFolder::require_in_place() const {
  if (name_in_lock_.empty()) return;
  const fs::path file = path_ / ".lock";
  std::error_code error;
  // read_file() can throw Interrupted after a stop signal, on some network file systems, and the
  // last checkpoint would be lost.
  if (fs::exists(file, error) && RandomAccessFile(file).text(1 << 12) == name_in_lock_) return;
  if (error) throw SystemError(file.string(), "open", error.value());
  throw Error(path_.string(),
              "this folder or its .lock was moved, removed or replaced while the training ran",
              "go on with --resume from where its checkpoints are now");
}

bool RunFolder::has_checkpoint() const { return !newest_checkpoints(path_).empty(); }

void RunFolder::clear() {
  for (const std::int64_t step : kept_steps(path_)) remove_checkpoint(step_folder(path_, step));
  remove_checkpoint(best());
  remove_checkpoint(last());
  remove_tree(log());
}

}  // namespace ql::train
