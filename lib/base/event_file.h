// Writes TensorBoard's event files: encodes the records, and names the file in a run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ql {

// A record of an event file is a TFRecord: length, checksum of the length, a message, checksum of
// the message. The message is an Event of TensorFlow's event.proto, encoded as protocol buffers.
// The Events here have few fields, so the protobuf library is not needed.

struct Scalar {
  std::string tag;  // "train/loss"; the part before the slash names a group of charts
  double value;     // stored as float32
};

// Returns the two records that begin a file: the version, and the start of a session. At the start
// of a session, a reader discards the events of earlier files in the folder. `time` is in seconds
// since 1970.
std::string event_file_start(double time);

// Returns a record with the values at a training step.
std::string scalar_event(double time, std::int64_t step, const std::vector<Scalar>& scalars);

// Our event files are called events.out.tfevents.MICROSECONDS.qltrain. TensorBoard and other
// loaders read every file with "tfevents" in its name, in the order of the names.

// Returns our event files in the folder, oldest first. Files of other writers are left out: their
// names end differently (usually with the machine's name).
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

// Writes a new file that holds event_file_start() and `events`, and then removes all earlier
// event_files(). The new file is complete when it appears. Its name comes from `now`, in seconds
// since 1970, and sorts after the names of the earlier files even when the clock was set back. A
// caller must not remove the earlier files itself, because the new file could then get an old name.
// A loader that knows a name does not notice a new file of that name.
std::filesystem::path start_event_file(const std::filesystem::path& folder, double now,
                                       std::string_view events);

}  // namespace ql
