// Tests reading a checkpoint that a training replaces at the same time.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "base/atomic_file.h"
#include "base/json.h"
#include "net/model_file.h"
#include "unit/nn_support.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"
#include "weights/weights.h"

namespace {

std::string awaited;  // the file before whose next opening `meanwhile` is called, once
std::function<void()> meanwhile;

}  // namespace

// This function replaces the system's.
extern "C" int open(const char* path, int flags, ...) {
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (meanwhile && awaited == path) std::exchange(meanwhile, nullptr)();
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace ql::weights {
namespace {

net::Network small_network() {
  return test::small_network(net::Architecture::kTransformerQl, {1, 1}, 1, {4, 4, 0});
}

// Writes a checkpoint with random weights, and returns their hash.
std::string write_checkpoint(const std::filesystem::path& folder, unsigned seed) {
  net::ModelFile description;
  description.network = small_network();
  const nn::Model model = test::random_model(description.network, seed, at::kFloat);
  std::filesystem::create_directory(folder);
  write_file_atomically(folder / "model.json", dump_json(net::model_file_to_json(description)));
  write_safetensors(folder / "model.safetensors", model.parameters(), {});
  net::write_state_file(folder, Json::object(), {"model.json", "model.safetensors"});
  return hash_of(model);
}

}  // namespace

TEST_CASE("read_weights: a checkpoint that is replaced between two files is read again") {
  const test::ScratchFolder scratch;
  const std::filesystem::path folder = scratch / "last";
  std::string before = write_checkpoint(folder, 1);
  unsigned seed = 2;
  for (const char* file : {"state.json", "model.json", "model.safetensors"}) {
    CAPTURE(std::string(file));
    const std::string after = write_checkpoint(scratch / "next", seed++);
    REQUIRE(after != before);
    awaited = (folder / file).string();
    meanwhile = [&] {
      std::filesystem::remove_all(folder);
      std::filesystem::rename(scratch / "next", folder);
    };
    nn::Model model(small_network(), at::kFloat);
    load_weights(model, read_weights(folder));
    CHECK(hash_of(model) == after);
    CHECK_FALSE(meanwhile);
    before = after;
  }
}

TEST_CASE("read_weights: a damaged checkpoint that stays the same is not read again and again") {
  const test::ScratchFolder scratch;
  write_checkpoint(scratch / "last", 1);
  std::filesystem::resize_file(scratch / "last" / "model.safetensors", 100);
  CHECK_THROWS_WITH_AS(read_weights(scratch / "last"), doctest::Contains("checksum mismatch"),
                       FormatError);
}

}  // namespace ql::weights
