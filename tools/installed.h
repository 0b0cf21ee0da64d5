// Finds installed files: programs that need LibTorch, and presets by their names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

// Returns the path of a program in libexec. The path is found from the folder of the running
// program, so the installation can be moved. Sets two environment variables for that program,
// unless the user has set them: one limits how long waiting threads spin, and one keeps UCX, which
// LibTorch may load, from handling SIGHUP. Throws Error when the program does not exist, or when
// ulimit -v or -d does not suffice for LibTorch.
std::filesystem::path libexec_program(const std::string& name);

// Returns `text` itself if it contains a slash, or names an existing file or a folder with
// model.json. Otherwise returns the preset with this name, which may end with .json, from the
// folders of QL_PRESETS (separated by colons) or the folder of the installation. Without such a
// preset, returns `text` if it names another folder. If nothing has this name, throws an Error that
// suggests a similar name or lists the folders.
std::filesystem::path preset_file(const std::string& text);

// Returns the sorted names of all presets in the folders that preset_file() searches.
std::vector<std::string> preset_names();
