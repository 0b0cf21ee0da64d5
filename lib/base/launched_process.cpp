// Reads the variables of torchrun, mpirun and srun.
#include "base/launched_process.h"

#include <array>

#include "base/bytes.h"
#include "base/error.h"
#include "base/strings.h"

namespace ql {

namespace {

// Holds the names of a launcher's variables. Without a value of `local_size`, the number of
// processes on this machine is computed from the number of machines. The values of `job` and `step`
// together are LaunchedProcess::job.
struct Names {
  const char *rank, *size, *local_rank, *local_size, *machines, *job, *step;
};

// The variables of torchrun come first: a script that srun has started may set them for its child
// processes.
constexpr std::array<Names, 4> kLaunchers{
    {{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr, "TORCHELASTIC_RUN_ID",
      nullptr},
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, "PMIX_NAMESPACE", nullptr},
     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_STEP_NUM_NODES",
      "SLURM_JOB_ID", "SLURM_STEP_ID"},
     {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, "PMI_JOBID",
      nullptr}}};

constexpr int kMostProcesses = 1 << 16;

int number(const Variable& variable, const char* name, int least, int most, int absent) {
  const char* text = name == nullptr ? nullptr : variable(name);
  if (text == nullptr) return absent;
  const std::optional<std::int64_t> value = parse_integer(text);
  if (!value || *value < least || *value > most) {
    const std::string allowed = least == most
                                    ? fmt::format("{}", least)
                                    : fmt::format("a whole number from {} to {}", least, most);
    throw UsageError(name,
                     fmt::format("this environment variable is '{}', expected {}", text, allowed));
  }
  return static_cast<int>(*value);
}

std::string text_of(const Variable& variable, const char* name) {
  const char* text = name == nullptr ? nullptr : variable(name);
  return text == nullptr ? "" : text;
}

// Returns the part of `text` after `before`, up to the next character in `ends` or the end of
// `text`. Returns "" if `before` does not occur.
std::string between(const std::string& text, const std::string& before, const char* ends) {
  const std::size_t start = text.find(before);
  if (start == std::string::npos) return "";
  const std::size_t begin = start + before.size();
  return text.substr(begin, text.find_first_of(ends, begin) - begin);
}

// Returns the host of process 0 if the launcher's variables show it, or "". Open MPI 4 gives the
// address of mpirun's host, and Open MPI 5 the name of that host ("prterun-HOST-NUMBER@1"). Process
// 0 runs on mpirun's host unless mpirun was given another list of hosts. Slurm lists the hosts of
// the processes in order. Slurm's list is read last: if Slurm has started only mpirun's daemons,
// the first host in the list may not run process 0.
std::string launchers_host(const Variable& variable) {
  const std::string uri = text_of(variable, "OMPI_MCA_orte_hnp_uri");
  if (std::string host = between(uri, ";tcp://", ":,;"); !host.empty()) return host;
  if (std::string host = between(uri, ";tcp6://[", "],;"); !host.empty()) return host;
  const std::string host = between(text_of(variable, "PMIX_NAMESPACE"), "prterun-", "@");
  if (!host.empty()) return host.substr(0, host.rfind('-'));
  return first_host(text_of(variable, "SLURM_STEP_NODELIST"));
}

// Returns a port computed from the job's name, so that two jobs on a host rarely share one. The
// port is below those that Linux gives to connections by itself.
int port_of(const std::string& job) {
  return 10000 + static_cast<int>(xxh64(job.data(), job.size()) % 20000);
}

// Sets `process.address` and the members that are declared after it.
void find_address(const Variable& variable, const Names& names, LaunchedProcess& process) {
  process.job = text_of(variable, names.job);
  if (const std::string step = text_of(variable, names.step); !step.empty()) {
    process.job += "." + step;
  }
  if (!process.job.empty()) process.port = port_of(process.job);
  process.port = number(variable, "MASTER_PORT", 1, 65535, process.port);
  process.launcher_answers = text_of(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  // Our keys in torchrun's key-value store begin with the job's name. With the number of restarts
  // in the name, restarted processes do not find old keys.
  if (process.launcher_answers) {
    process.job += "/" + text_of(variable, "TORCHELASTIC_RESTART_COUNT");
  }
  std::string address = text_of(variable, "MASTER_ADDR");
  if (address.empty() && process.size > process.local_size) {
    address = launchers_host(variable);
    if (address.empty()) {
      throw UsageError(
          "MASTER_ADDR",
          "this environment variable is unset or empty, but the processes are on several machines",
          "set it to the host name of the machine of process 0");
    }
  }
  if (!address.empty()) process.address = address;
}

}  // namespace

std::optional<LaunchedProcess> find_launched_process(const Variable& variable) {
  for (const Names& names : kLaunchers) {
    if (variable(names.rank) == nullptr || variable(names.size) == nullptr) continue;
    // In a step of Slurm, the mpirun of MPICH leaves the step's own variables to its processes.
    const bool step = std::string_view(names.rank) == "SLURM_PROCID";
    if (step && variable("MPI_LOCALRANKID") != nullptr && variable("PMI_RANK") != nullptr) continue;
    LaunchedProcess process;
    process.size = number(variable, names.size, 1, kMostProcesses, 1);
    process.rank = number(variable, names.rank, 0, process.size - 1, 0);
    // If the launcher gives neither the number of machines nor a local size, all processes are
    // taken to run on this machine.
    const int machines = number(variable, names.machines, 1, process.size, 1);
    process.local_size =
        number(variable, names.local_size, 1, process.size, (process.size - 1) / machines + 1);
    process.local_rank =
        number(variable, names.local_rank, 0, process.size - 1, process.rank % process.local_size);
    find_address(variable, names, process);
    return process;
  }
  return std::nullopt;
}

std::string first_host(const std::string& node_list) {
  const std::size_t end = node_list.find_first_of(",[");
  std::string host = node_list.substr(0, end);
  if (end == std::string::npos || node_list[end] == ',') return host;
  const std::string numbers = node_list.substr(end + 1);
  const std::size_t after = numbers.find(']');
  const std::string first = host + numbers.substr(0, numbers.find_first_of(",-]"));
  return after == std::string::npos ? first : first + first_host(numbers.substr(after + 1));
}

std::string process_name(int rank, int size) { return fmt::format("process {} of {}", rank, size); }

}  // namespace ql
