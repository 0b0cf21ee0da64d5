// Compares the installed presets with the paper's appendix E and tables 1 and 5.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>

#include "net/context.h"
#include "net/cost.h"
#include "net/model_file.h"

using namespace ql::net;

namespace {

const std::filesystem::path kPresets = std::filesystem::path(QL_SHARE) / "presets";

Preset preset(const std::string& name) { return read_preset(kPresets / (name + ".json"), {}, {}); }

double mean(const std::string& name, const Lengths& lengths) {
  return paper_context(preset(name).network, lengths).mean();
}

}  // namespace

TEST_CASE("read_preset: every preset can be read and built, and says what it is") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kPresets)) {
    CAPTURE(entry.path().string());
    const Preset found = read_preset(entry.path(), {}, {});
    CHECK_NOTHROW(make_geometry(found.network, found.network.lengths));
    CHECK(found.about.size() > 10);
    CHECK(found.network.vocab_size == 0);
    CHECK(found.training.at("batch").is_number_integer());
    ++count;
  }
  CHECK(count >= 6);
}

TEST_CASE("read_preset: SimpleBooks-2 presets: appendix E") {
  for (const char* name : {"simplebooks-2-ql", "simplebooks-2-xl", "simplebooks-2-compressive",
                           "simplebooks-2-multiscale"}) {
    CAPTURE(name);
    const Preset found = preset(name);
    const Network& network = found.network;
    CHECK(network.d_model == 256);
    CHECK(network.n_head == 4);
    CHECK(network.d_head == 64);
    CHECK(network.d_inner == 1024);
    CHECK(network.layers() == 8);
    CHECK(network.pre_lnorm);
    CHECK_FALSE(network.untie_r);
    CHECK(network.dropout == 0.1);
    CHECK(network.dropatt == 0.1);
    CHECK(network.init_std == 0.02);
    CHECK(network.proj_init_std == 0.01);
    CHECK(found.training.at("batch") == 1024 / network.lengths.segment);
    CHECK(found.training.at("steps") == 60000);
    CHECK(found.training.at("learning_rate") == 0.00025);
    CHECK(found.training.at("min_lr_ratio") == 0.004);
    CHECK(found.training.at("warmup_steps") == 0);
    CHECK(found.training.at("clip") == 0.25);
  }
  CHECK(preset("simplebooks-2-ql").network.droppath == 0.3);
  CHECK(preset("simplebooks-2-multiscale").network.droppath == 0.3);
  CHECK(preset("simplebooks-2-xl").network.droppath == 0);
  CHECK(preset("simplebooks-2-ql").network.lengths == Lengths{8, 8, 0});
  CHECK(preset("simplebooks-2-xl").network.lengths == Lengths{8, 8, 0});
  CHECK(preset("simplebooks-2-compressive").network.lengths == Lengths{4, 6, 6});
  CHECK(preset("simplebooks-2-multiscale").network.lengths == Lengths{8, 0, 0});
}

TEST_CASE("read_preset: SimpleBooks-2 presets: the average context lengths of tables 1 and 5") {
  CHECK(mean("simplebooks-2-ql", {4, 12, 0}) == 138);
  CHECK(mean("simplebooks-2-ql", {8, 24, 0}) == 276);
  CHECK(mean("simplebooks-2-ql", {8, 8, 0}) == 100);
  CHECK(mean("simplebooks-2-ql", {16, 16, 0}) == 200);
  CHECK(mean("simplebooks-2-xl", {4, 12, 0}) == 98);
  CHECK(mean("simplebooks-2-xl", {8, 24, 0}) == 196);
  CHECK(mean("simplebooks-2-compressive", {4, 6, 6}) == 146);
  CHECK(mean("simplebooks-2-compressive", {8, 12, 12}) == 292);
  CHECK(mean("simplebooks-2-multiscale", {16, 0, 0}) == 8);
  CHECK(mean("simplebooks-2-multiscale", {64, 0, 0}) == 32);
}

TEST_CASE("read_preset: the demo's networks have the same depth, and Transformer-QL sees further") {
  const Network quadratic = preset("demo-ql").network, linear = preset("demo-xl").network;
  CHECK(quadratic.lengths == linear.lengths);
  // The networks differ by the maps that join the scales.
  const std::int64_t maps =
      cost(quadratic, quadratic.lengths).parameters - cost(linear, linear.lengths).parameters;
  CHECK(maps == std::int64_t{2} * quadratic.d_model * quadratic.d_model);
  CHECK(exact_context(quadratic, quadratic.lengths).minimum >
        exact_context(linear, linear.lengths).maximum);
}
