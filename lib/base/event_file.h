// TensorBoard's event files in a folder: events.out.tfevents.MICROSECONDS.qltrain. Loaders
// take every file with "tfevents" in its name, in the order of the names.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace ql {

// Ours in this folder, oldest first. Other writers have another last part of the name (usually that
// of the machine): theirs are left alone.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

// Starts a file that holds `events` (event_record.h) and takes the place of all that were there.
// It is whole when it appears. `now`, in seconds since 1970, names it; the name is above those of
// its predecessors even when the clock was set back. So a caller must leave predecessors in place:
// a loader that knows a name does not see a new file under it.
std::filesystem::path start_event_file(const std::filesystem::path& folder, double now,
                                       std::string_view events);

}  // namespace ql
