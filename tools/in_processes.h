// Runs a tool's work in this process, alone or with the others that a launcher has started.
#pragma once

#include <chrono>

#include "base/options.h"
#include "machine/process_group.h"

// Calls work(options, group); the group of a single process is null.
template <typename Work>
void run_in_processes(const ql::Options& options, const Work& work) {
  const auto group = ql::machine::join_processes(std::chrono::seconds(options.integer("timeout")));
  ql::machine::run_in_group(group.get(), [&] { work(options, group.get()); });
}
