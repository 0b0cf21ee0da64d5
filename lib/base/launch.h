// This program several times on this machine, as cooperating processes.
#pragma once

#include <string>

namespace ql {

// Does what an option --processes asks for. Returns false when this process is to do the work
// itself, alone or as one of several. Returns true when `count` processes did it, started with our
// own command line and torchrun's variables (base/launched_process.h), and all ended well.
//
// Their standard input is empty; a signal that asks us to stop is passed on to each once. When one
// fails, its number is logged, unless it has told why, and the others are ended: AlreadyReported
// with its exit code (128 + n when signal n ended it), or Interrupted when we were asked to stop.
// Throws UsageError when a launcher has started another number of processes, SystemError when they
// cannot be started.
bool run_processes(int count);

// True when another of the processes that run_processes() started has called this with the same
// words: an error that all of them meet is told once.
bool told_by_another(const std::string& words);

// Sees to it that a process which run_processes() started does not outlive the one that started it,
// and that a signal which reaches it directly and through that one counts once.
void join_launcher();

}  // namespace ql
