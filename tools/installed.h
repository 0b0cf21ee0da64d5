// Finds installed files: programs that need LibTorch, and presets by their names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

// Returns the path of a program in libexec, relative to the folder of the running program, so that
// the installation can be moved. Sets an environment variable that limits how long waiting threads
// of that program spin, unless the user has set it. Throws Error when the program does not exist.
std::filesystem::path libexec_program(const std::string& name);

// These find presets.

// Returns `text` itself when it is a path or exists; otherwise the preset of that name, with or
// without .json, in one of the folders of QL_PRESETS (separated by colons) or of the installation.
// Throws Error that lists the names of presets.
std::filesystem::path preset_file(const std::string& text);

// Returns the names of the presets in these folders.
std::vector<std::string> preset_names();
