// Finds which one of several cooperating processes this is, by the variables that launchers set:
// torchrun, mpirun (Open MPI, MPICH) or srun.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace ql {

struct LaunchedProcess {
  int rank = 0, size = 1;              // among all processes
  int local_rank = 0, local_size = 1;  // among those on this machine, as far as the launcher says
  std::string address = "127.0.0.1";   // where the processes meet: rank 0 answers there,
  int port = 29500;
  bool launcher_answers = false;  // or, as this says, torchrun itself
  std::string job;                // its name among the jobs of the launcher; empty: unknown
};

// Returns the value of an environment variable, or nullptr when it is not set.
using Variable = std::function<const char*(const char* name)>;

// Returns nothing for a process that no launcher started. Throws UsageError for variables that are
// missing, are not numbers, or do not fit together.
std::optional<LaunchedProcess> find_launched_process(const Variable& variable = std::getenv);

// Returns "process 2 of 4", counted from 0, as every launcher does.
std::string process_name(int rank, int size);

// Returns the first host of Slurm's short form: "node07" of "node[07-09,12],other".
std::string first_host(const std::string& node_list);

}  // namespace ql
