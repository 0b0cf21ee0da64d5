// Reads and checks the checkpoints of a qleval call before anything is evaluated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "net/model_file.h"

namespace ql::eval {

// This is the remedy of ProcessGroup::require_same() where the processes may be of two jobs.
constexpr const char* kSameJob =
    "start all processes with the same program, command and data; or another job uses this port: "
    "then give each job a MASTER_PORT of its own";

struct Checkpoint {
  std::string name;  // as given
  std::filesystem::path folder;
  net::ModelFile model;
  std::vector<net::Lengths> lengths;  // the lengths to evaluate with; the last changes fastest
};

// Lengths to combine; an empty list stands for the length that each checkpoint was trained with.
struct LengthLists {
  std::vector<std::int64_t> segments, memories, compressed_memories;
};

// Reads model.json of `name`, a folder or the path of that file. Throws Error if there are no
// weights, and ConfigError for lengths that do not fit the network, or each other where `stride` is
// not 0 (check_stride() of eval/evaluate.h).
Checkpoint read_checkpoint(const std::string& name, const LengthLists& lists,
                           std::int64_t stride = 0);

}  // namespace ql::eval
