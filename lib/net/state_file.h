// state.json of a checkpoint folder: where the training stands, and the hashes of the files beside
// it. ql-checkpoint(5) has the format.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace ql::net {

// The object "state". Throws FormatError unless the file has its format and checksum,
// UnknownVersion for that of another release, SystemError when it cannot be
// read.
Json read_state_file(const std::filesystem::path& folder);

// Throws as read_state_file() does, for each of these files that is missing, too, and FormatError
// with `cure` for one that has not the hash that state.json says.
void check_files(const std::filesystem::path& folder, const std::vector<std::string>& files,
                 const std::string& cure = "");

// Tells whether state.json has a hash of this file. Throws as read_state_file() does.
bool covers(const std::filesystem::path& folder, const std::string& file);

// `state` is the text of an object, as dump_json() makes it. The files must be there. A signal does
// not end it: a checkpoint is written when one has come.
void write_state_file(const std::filesystem::path& folder, const std::string& state,
                      const std::vector<std::string>& files);

}  // namespace ql::net
