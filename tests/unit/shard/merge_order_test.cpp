// Tests numbered names whose order is not that of their numbers.

#include <doctest/doctest.h>

#include "shard/merge.h"

namespace ql::shard {

TEST_CASE("descending_names: numbered names that do not ascend are found") {
  struct Case {
    std::vector<std::string> names;
    std::string found;
  };
  const Case cases[] = {
      {{}, ""},
      {{"part1"}, ""},
      {{"part1", "part2", "part10"}, ""},
      {{"part1", "part10", "part2"}, "part10, part2"},  // a shell's order
      {{"x.9.packed", "x.10.packed", "x.11.packed"}, ""},
      {{"x.10.packed", "x.9.packed"}, "x.10.packed, x.9.packed"},
      {{"part01", "part02", "part10"}, ""},
      {{"part010", "part9"}, "part010, part9"},
      {{"part1", "part1"}, ""},
      {{"part1", "part01"}, ""},
      {{"b", "a"}, ""},                            // no numbers
      {{"valid2", "train1"}, ""},                  // other names
      {{"a1", "b1", "a3", "b2", "a2"}, "a3, a2"},  // others between them
      {{"run2/part9", "run10/part1"}, ""},
      {{"run10/part", "run2/part"}, "run10/part, run2/part"},
      {{"2024-01-10", "2024-02-02", "2024-01-11"}, "2024-02-02, 2024-01-11"},
      {{"./part10", "part2/"}, "./part10, part2/"},
      // Numbers may have any length.
      {{"p99999999999999999999", "p100000000000000000000"}, ""},
      {{"p100000000000000000000", "p99999999999999999999"},
       "p100000000000000000000, p99999999999999999999"},
  };
  for (const Case& row : cases) CHECK(descending_names(row.names) == row.found);
}

}  // namespace ql::shard
