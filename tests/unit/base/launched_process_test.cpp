// Tests the variables by which launchers number their processes.

#include "base/launched_process.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "unit/complaint.h"

namespace ql {
namespace {

std::optional<LaunchedProcess> process_in(const std::map<std::string, std::string>& variables) {
  return find_launched_process([&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const std::map<std::string, std::string>& variables) {
  return test::complaint<UsageError>([&] { process_in(variables); });
}

}  // namespace

TEST_CASE("a process that no launcher started is none of several") {
  CHECK_FALSE(process_in({}).has_value());
  // An allocation of Slurm's alone starts nothing.
  CHECK_FALSE(process_in({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}).has_value());
}

TEST_CASE("torchrun's variables") {
  const auto process = process_in({{"RANK", "5"},
                                   {"WORLD_SIZE", "8"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "4"},
                                   {"MASTER_ADDR", "node-a"},
                                   {"MASTER_PORT", "1234"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                   {"TORCHELASTIC_RESTART_COUNT", "2"},
                                   {"TORCHELASTIC_RUN_ID", "night"}});
  REQUIRE(process.has_value());
  CHECK(process->rank == 5);
  CHECK(process->size == 8);
  CHECK(process->local_rank == 1);
  CHECK(process->local_size == 4);
  CHECK(process->address == "node-a");
  CHECK(process->port == 1234);
  CHECK(process->launcher_answers);
  CHECK(process->job == "night/2");
}

TEST_CASE("other launchers") {
  const auto mpi = process_in({{"OMPI_COMM_WORLD_RANK", "2"},
                               {"OMPI_COMM_WORLD_SIZE", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}});
  REQUIRE(mpi.has_value());
  CHECK(mpi->rank == 2);
  CHECK(mpi->address == "127.0.0.1");
  CHECK(mpi->port == 29500);
  CHECK_FALSE(mpi->launcher_answers);

  const auto mpich_in_slurm = process_in({{"SLURM_PROCID", "0"},
                                          {"SLURM_STEP_NUM_TASKS", "1"},
                                          {"PMI_RANK", "1"},
                                          {"PMI_SIZE", "2"},
                                          {"MPI_LOCALRANKID", "1"},
                                          {"MPI_LOCALNRANKS", "2"}});
  REQUIRE(mpich_in_slurm.has_value());
  CHECK(mpich_in_slurm->rank == 1);
  CHECK(mpich_in_slurm->size == 2);

  const std::map<std::string, std::string> two_machines = {{"SLURM_PROCID", "5"},
                                                           {"SLURM_STEP_NUM_TASKS", "8"},
                                                           {"SLURM_LOCALID", "1"},
                                                           {"SLURM_STEP_NUM_NODES", "2"}};
  CHECK(refusal(two_machines).find("MASTER_ADDR") == 0);
  auto with_address = two_machines;
  with_address["MASTER_ADDR"] = "node-a";
  const auto slurm = process_in(with_address);
  REQUIRE(slurm.has_value());
  CHECK(slurm->address == "node-a");
  CHECK(slurm->size == 8);
  CHECK(slurm->local_size == 4);
  CHECK(slurm->local_rank == 1);

  const auto mpich = process_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  REQUIRE(mpich.has_value());
  CHECK(mpich->rank == 1);
  CHECK(mpich->local_size == 2);
}

TEST_CASE("launchers say where the first process is, and which job it belongs to") {
  using Variables = std::map<std::string, std::string>;
  const Variables slurm = {{"SLURM_PROCID", "1"},
                           {"SLURM_STEP_NUM_TASKS", "2"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_STEP_NUM_NODES", "2"},
                           {"SLURM_JOB_ID", "71"},
                           {"SLURM_STEP_ID", "3"},
                           {"SLURM_STEP_NODELIST", "n[07-08]"}};
  const Variables mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  struct Case {
    Variables variables, more;
    std::string address, job;
  };
  const std::vector<Case> cases = {
      {slurm, {}, "n07", "71.3"},
      {slurm, {{"SLURM_STEP_ID", "4"}}, "n07", "71.4"},
      {mpi,
       {{"PMIX_NAMESPACE", "110559233"},
        {"OMPI_MCA_orte_hnp_uri", "110559232.0;tcp://192.0.2.2,10.0.0.2:44373;tcp6://[fd00::2]:5"}},
       "192.0.2.2",
       "110559233"},
      {mpi, {{"OMPI_MCA_orte_hnp_uri", "1.0;tcp6://[fd00::2,fd01::2]:5"}}, "fd00::2", ""},
      // mpirun in an allocation of Slurm, whose step is that of Open MPI's daemons.
      {mpi,
       {{"SLURM_STEP_NODELIST", "n08"}, {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://10.0.0.7:4"}},
       "10.0.0.7",
       ""},
      {mpi, {{"PMIX_NAMESPACE", "prterun-node-a-4711@1"}}, "node-a", "prterun-node-a-4711@1"}};
  std::set<int> ports;
  for (const Case& one : cases) {
    CAPTURE(one.job);
    Variables variables = one.more;
    variables.insert(one.variables.begin(), one.variables.end());
    const auto process = process_in(variables);
    REQUIRE(process.has_value());
    CHECK(process->address == one.address);
    CHECK(process->job == one.job);
    if (one.job.empty()) continue;
    // Another job has another port; 32768 is the first one that Linux gives away by itself.
    CHECK(process->port > 1024);
    CHECK(process->port < 32768);
    CHECK(ports.insert(process->port).second);
    variables["MASTER_PORT"] = "1234";
    CHECK(process_in(variables)->port == 1234);
  }
}

TEST_CASE("the first host of Slurm's lists") {
  const std::pair<const char*, const char*> cases[] = {{"n1", "n1"},
                                                       {"a,b", "a"},
                                                       {"n[3,5-7]", "n3"},
                                                       {"n[003-128]", "n003"},
                                                       {"n[1-2]-ib,x", "n1-ib"},
                                                       {"r[2-3]n[04,06]", "r2n04"},
                                                       {"n[4", "n4"},
                                                       {"", ""}};
  for (const auto& [list, host] : cases) CHECK(first_host(list) == host);
}

TEST_CASE("variables that do not fit together are refused by name") {
  CHECK(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}}) ==
        "RANK: this environment variable is '4', expected a whole number from 0 to 3");
  CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "four"}}).find("WORLD_SIZE") == 0);
  CHECK(
      refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}).find("MASTER_PORT") ==
      0);
  CHECK(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}})
            .find("LOCAL_WORLD_SIZE") == 0);
}

}  // namespace ql
