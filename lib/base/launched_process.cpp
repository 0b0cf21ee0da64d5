#include "base/launched_process.h"

#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/number.h"

namespace ql {

namespace {

// These variables tell a process its numbers; each launcher has its own names for them. Where it
// tells no local size, the number of machines stands for it.
struct Names {
  const char *rank, *size, *local_rank, *local_size, *machines;
};

// torchrun's come first: a script that srun has started may set them for its own processes.
constexpr std::array<Names, 4> kLaunchers{
    {{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr},
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_STEP_NUM_NODES"},
     {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr}}};

constexpr int kMostProcesses = 1 << 16;

int number(const Variable& variable, const char* name, int least, int most) {
  const char* text = variable(name);
  if (text == nullptr) {
    throw UsageError(name, "the variable is not set, but others of a launcher are",
                     "start the processes with torchrun, mpirun, srun or --processes");
  }
  const std::optional<std::int64_t> value = parse_integer(text);
  if (!value || *value < least || *value > most) {
    throw UsageError(
        name, fmt::format("a whole number from {} to {} expected, found '{}'", least, most, text));
  }
  return static_cast<int>(*value);
}

int number_or(const Variable& variable, const char* name, int least, int most, int absent) {
  return name == nullptr || variable(name) == nullptr ? absent
                                                      : number(variable, name, least, most);
}

// Finds where the processes meet. Only torchrun and run_processes() tell it in any case.
void find_address(const Variable& variable, LaunchedProcess& process) {
  const char* address = variable("MASTER_ADDR");
  if (address != nullptr && *address != '\0') {
    process.address = address;
  } else if (process.size > process.local_size) {
    throw UsageError("MASTER_ADDR",
                     "the variable is not set, and not all processes are on one "
                     "machine",
                     "set it to the host name of the machine of process 0");
  }
  process.port = number_or(variable, "MASTER_PORT", 1, 65535, process.port);
  const char* answers = variable("TORCHELASTIC_USE_AGENT_STORE");
  process.launcher_answers = answers != nullptr && std::string(answers) == "True";
  process.restart = number_or(variable, "TORCHELASTIC_RESTART_COUNT", 0, 1 << 30, 0);
}

}  // namespace

std::optional<LaunchedProcess> find_launched_process(const Variable& variable) {
  for (const Names& names : kLaunchers) {
    if (variable(names.rank) == nullptr || variable(names.size) == nullptr) continue;
    LaunchedProcess process;
    process.size = number(variable, names.size, 1, kMostProcesses);
    process.rank = number(variable, names.rank, 0, process.size - 1);
    // Where nothing is said, all are on this machine.
    const int machines = number_or(variable, names.machines, 1, process.size, 1);
    process.local_size =
        number_or(variable, names.local_size, 1, process.size, (process.size - 1) / machines + 1);
    process.local_rank = number_or(variable, names.local_rank, 0, process.size - 1,
                                   process.rank % process.local_size);
    find_address(variable, process);
    return process;
  }
  return std::nullopt;
}

std::optional<LaunchedProcess> find_launched_process() {
  return find_launched_process([](const char* name) { return std::getenv(name); });
}

std::string process_name(int rank, int size) { return fmt::format("process {} of {}", rank, size); }

}  // namespace ql
