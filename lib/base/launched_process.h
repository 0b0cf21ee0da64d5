// Finds the rank of this process among cooperating processes, by the environment variables of their
// launcher: torchrun, mpirun (Open MPI, MPICH) or srun.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace ql {

struct LaunchedProcess {
  int rank = 0, size = 1;              // among all processes
  int local_rank = 0, local_size = 1;  // among the processes on this machine
  std::string address = "127.0.0.1";   // the host where the processes meet
  int port = 29500;
  bool launcher_answers = false;  // true: torchrun listens at the port; false: rank 0 does
  std::string job;                // the job's name at the launcher; empty: unknown
};

// Returns the value of an environment variable, or nullptr when it is not set.
using Variable = std::function<const char*(const char* name)>;

// Returns nothing unless a launcher has set rank and number of processes. Throws UsageError for
// variables that are not numbers or do not fit together, and if processes on several machines have
// no address to meet at.
std::optional<LaunchedProcess> find_launched_process(const Variable& variable = std::getenv);

// Returns "process 2 of 4" for rank 2. Ranks count from 0, as in every launcher.
std::string process_name(int rank, int size);

// Returns the first host of a list in Slurm's short form: "node07" for "node[07-09,12],other".
std::string first_host(const std::string& node_list);

}  // namespace ql
