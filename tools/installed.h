// Finds installed files: programs that need LibTorch, and presets by their names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

// Returns the path of a program in libexec. The path is found from the folder of the running
// program, so the installation can be moved. Sets two environment variables for that program,
// unless the user has set them: one limits how long waiting threads spin, and one keeps UCX, which
// LibTorch may load, from handling SIGHUP. Throws Error when the program does not exist.
std::filesystem::path libexec_program(const std::string& name);

// Returns `text` itself when it contains a slash or is an existing path. Otherwise returns the
// preset with this name, which may end with .json, in one of the folders of QL_PRESETS (separated
// by colons) or in the folder of the installation. A preset takes precedence over a folder of the
// same name that is not a checkpoint, such as RUN. When nothing is found, throws an Error that
// suggests a similar name or lists the folders.
std::filesystem::path preset_file(const std::string& text);

// Returns the sorted names of all presets in the folders that preset_file() searches.
std::vector<std::string> preset_names();
