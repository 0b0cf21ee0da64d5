// Finds presets by their names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

// Returns `text` itself when it is a path or exists; else the preset of that name, with or without
// .json, in one of the folders of QL_PRESETS (separated by colons) or among those that were
// installed. Throws Error that says which names there are.
std::filesystem::path preset_file(const std::string& text);

// The names that presets in these folders have.
std::vector<std::string> preset_names();
