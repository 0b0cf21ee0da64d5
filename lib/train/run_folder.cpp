#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "train/retention.h"

namespace ql::train {

namespace fs = std::filesystem;

RunFolder::RunFolder(fs::path path, Start start, bool reads_only) : path_(std::move(path)) {
  if (reads_only) return;
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw SystemError(path_.string(), "create the folder", error.value());
  lock_ = Descriptor(path_, O_RDONLY | O_DIRECTORY, path_.string(), "open the folder");
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      throw Error(path_.string(), "another training is writing to this folder",
                  "wait for it or choose another -o");
    }
    throw SystemError(path_.string(), "lock the folder", errno);
  }
  for (const char* name : {"manifest.json", "model.json"}) {
    if (fs::exists(path_ / name)) {
      throw Error(path_.string(),
                  fmt::format("the folder holds {}: it is packed data or a checkpoint", name),
                  "choose another -o");
    }
  }
  put_back_replaced(path_);
  if (start == Start::kNew && has_checkpoint()) {
    throw Error(path_.string(), "the folder holds a checkpoint of an earlier training",
                "continue it with --resume, replace it with --force, or choose another -o");
  }
  remove_leftovers(path_);
}

bool RunFolder::has_checkpoint() const { return !newest_checkpoints(path_).empty(); }

void RunFolder::clear() {
  remove_kept(path_);
  remove_checkpoint(best());
  remove_checkpoint(last());
  std::error_code error;
  fs::remove_all(log(), error);
  if (error) throw SystemError(log().string(), "remove", error.value());
}

}  // namespace ql::train
