// Collects what is wrong with a configuration, so that it is told all at once: whoever mends one
// conflict wants to know the others, too.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ql {

class Conflicts {
 public:
  // The parts are those of Error. `mend`, which may be empty, is the KEY=VALUE that ends the
  // conflict. One that was added before counts once: a rule may be a part of two checks.
  void add(const std::string& where, const std::string& what, const std::string& cure = "",
           const std::string& mend = "");
  std::size_t size() const { return all_.size(); }
  // Throws ConfigError if there are any, which names every one on a line of its own where there are
  // several. `option`, such as "--set", stands before each KEY=VALUE; without it they are left out,
  // for a reader who cannot give any.
  void raise(const std::string& option = "") const;

 private:
  struct Conflict {
    std::string where, what, cure, mend;
  };
  std::vector<Conflict> all_;
};

}  // namespace ql
