// Runs a tool's work in one process or in several.
#pragma once

#include <chrono>

#include "base/launch.h"
#include "base/options.h"
#include "machine/process_group.h"

// Calls work(options, group) in every process that the options of machine_options(), or a launcher,
// ask for; the group of a single process is null.
template <typename Work>
void run_in_processes(const ql::Options& options, const Work& work) {
  if (ql::run_processes(static_cast<int>(options.integer("processes")))) return;
  const auto group = ql::machine::join_processes(std::chrono::seconds(options.integer("timeout")));
  ql::machine::run_in_group(group.get(), [&] { work(options, group.get()); });
}
