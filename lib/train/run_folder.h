// Opens and locks RUN, the folder that a training writes to. It holds best/, last/, the checkpoints
// of train/retention.h, log.jsonl and a TensorBoard event file.
#pragma once

#include <filesystem>

#include "base/descriptor.h"

namespace ql::train {

enum class Start {
  kNew,     // refuse a folder that already has a checkpoint
  kResume,  // go on from last/, or from the newest other checkpoint when that is missing or damaged
  kForce,   // remove what an earlier training left
};

// Creates the folder and holds a lock on it, so that no second training writes there.
class RunFolder {
 public:
  // Throws Error when another process holds the lock, and for kNew when there is a checkpoint.
  // Mends what a killed training left of checkpoints that it was writing or removing. With
  // `reads_only` nothing is created, locked, removed or refused: the other processes use it beside
  // the one that writes.
  RunFolder(std::filesystem::path path, Start start, bool reads_only = false);

  std::filesystem::path best() const { return path_ / "best"; }
  std::filesystem::path last() const { return path_ / "last"; }
  std::filesystem::path log() const { return path_ / "log.jsonl"; }
  bool has_checkpoint() const;
  const std::filesystem::path& path() const { return path_; }
  // Removes checkpoints and log of an earlier training, and the temporary files of a killed one.
  // The event file stays for RunLog, which replaces it by one of a later name.
  void clear();

 private:
  std::filesystem::path path_;
  Descriptor lock_;
};

}  // namespace ql::train
