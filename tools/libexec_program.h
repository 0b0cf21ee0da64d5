// Finds the programs that need LibTorch, which other tools start.
#pragma once

#include <filesystem>
#include <string>

// Returns the path of a program in libexec, which is found from the folder of the running one: the
// installation can be moved. Bounds, in our environment, how long the threads of a program that is
// started with it spin while they wait, unless the user has chosen that. Throws Error when it is
// not there.
std::filesystem::path libexec_program(const std::string& name);
