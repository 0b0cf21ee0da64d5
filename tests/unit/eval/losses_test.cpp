// The file of per-token losses, compared byte by byte, and the likeliest tokens.
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/losses.h"
#include "unit/nn_support.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"

namespace ql::eval {
namespace {

TEST_CASE("LossFile: losses are little-endian float32 in stream order") {
  const test::ScratchFolder scratch;
  const auto path = scratch / "losses";
  LossFile file(path, 3);
  const double first[] = {1.0, -2.5}, last[] = {0.1};
  file.put(3, last, 1);  // in any order
  file.put(1, first, 2);
  CHECK(!std::filesystem::exists(path));
  file.commit();
  CHECK(test::slurp(path) == std::string("\x00\x00\x80\x3f\x00\x00\x20\xc0\xcd\xcc\xcc\x3d", 12));
}

TEST_CASE("LossFile: more losses than are written at a time") {
  const test::ScratchFolder scratch;
  const std::int64_t count = 65536 + 7;
  LossFile file(scratch / "losses", count);
  for (std::int64_t position = 1; position <= count; ++position) {
    const auto loss = static_cast<double>(position);
    file.put(position, &loss, 1);
  }
  file.commit();
  const std::string bytes = test::slurp(scratch / "losses");
  CHECK(bytes.size() == 4 * count);
  // 65536 = 2^16 and 65543 as float32
  CHECK(bytes.substr(4 * 65535, 4) == std::string("\x00\x00\x80\x47", 4));
  CHECK(bytes.substr(4 * 65542, 4) == std::string("\x80\x03\x80\x47", 4));
}

TEST_CASE("LossFile: an evaluation that fails leaves no file") {
  const test::ScratchFolder scratch;
  { LossFile file(scratch / "losses", 3); }
  CHECK(scratch.entries() == 0);
}

TEST_CASE("LossFile: a path that cannot be written fails at once") {
  CHECK_THROWS_AS(LossFile("/nonexistent/losses", 3), Error);
}

TEST_CASE("LossFile: positions outside the stream are a programming error") {
  const test::ScratchFolder scratch;
  LossFile file(scratch / "losses", 3);
  const double losses[] = {1, 2};
  CHECK_THROWS_AS(file.put(0, losses, 1), std::out_of_range);
  CHECK_THROWS_AS(file.put(3, losses, 2), std::out_of_range);
  CHECK_THROWS_AS(file.put(4, losses, 1), std::out_of_range);
}

TEST_CASE(
    "likeliest_in_blocks: the tokens of a chunk come in blocks, with the bits of all together") {
  net::Network network = test::small_network(net::Architecture::kVanilla, {1}, 0, {4, 0, 0});
  network.vocab_size = 9000;
  const nn::Model model = test::random_model(network, 4, at::kFloat);
  const at::Tensor states = at::randn({1000, network.d_model}, at::kFloat);
  constexpr std::int64_t kTop = 9000, kMostBytes = std::int64_t{64} << 20;
  const std::int64_t rows = rows_of_likeliest(model, states, kTop);
  CHECK(rows * kTop * static_cast<std::int64_t>(sizeof(LikelyToken)) <= kMostBytes);
  CHECK(rows * 2 < states.size(0));
  CHECK(rows_of_likeliest(model, states, 1) > states.size(0));
  CHECK(rows_of_likeliest(model, states, 0) == states.size(0));

  const at::NoGradGuard no_gradient;
  const std::vector<LikelyToken> all = likeliest_in_blocks(model, states, kTop);
  const std::vector<std::int64_t> ids(1000, 7);
  std::vector<std::int64_t> positions(1000);
  std::iota(positions.begin(), positions.end(), 1);
  std::size_t next = 0;
  bool same = true;
  EvaluationOptions options;
  options.top = kTop;
  options.sink = [&](const ScoredTargets& targets) {
    CHECK(targets.count <= rows);
    for (std::int64_t i = 0; i < targets.count * kTop; ++i, ++next) {
      same = same && targets.likeliest[i].id == all[next].id &&
             targets.likeliest[i].log_probability == all[next].log_probability;
    }
  };
  Evaluation result;
  score_states(model, states, ids, positions, options, result);
  CHECK(next == all.size());
  CHECK(same);
  CHECK(result.targets == 1000);
}

TEST_CASE("likeliest_in_blocks: of equally likely tokens the one with the lower id comes first") {
  net::Network network = test::small_network(net::Architecture::kVanilla, {1}, 0, {4, 0, 0});
  network.vocab_size = 50;
  const nn::Model model = test::random_model(network, 4, at::kFloat);
  const at::NoGradGuard no_gradient;
  for (const nn::NamedTensor& parameter : model.parameters()) parameter.tensor.zero_();
  const at::Tensor states = at::ones({3, network.d_model}, at::kFloat);
  for (const LikelyToken& token : likeliest_in_blocks(model, states, 1)) CHECK(token.id == 0);
  for (const std::int64_t top : {2, 5, 50}) {
    std::int64_t next = 0;
    for (const LikelyToken& token : likeliest_in_blocks(model, states, top)) {
      CHECK(token.id == next++ % top);
    }
  }
}

}  // namespace
}  // namespace ql::eval
