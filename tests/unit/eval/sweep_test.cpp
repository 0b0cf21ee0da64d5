// Runs sweeps on the CPU by the operations with which every other device computes them.
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/json.h"
#include "eval/sweep.h"
#include "machine/device.h"
#include "net/model_file.h"
#include "unit/nn_support.h"
#include "unit/plain_bfloat16.h"
#include "unit/scratch.h"
#include "unit/torch_doctest.h"
#include "unit/train_support.h"
#include "weights/safetensors.h"

namespace ql::eval {
namespace {

struct Folder {
  Folder() {
    net::ModelFile description;
    description.network = test::tiny_ql();
    const nn::Model model = test::random_model(description.network, 3, at::kFloat);
    std::filesystem::create_directory(scratch / "model");
    write_file_atomically(scratch / "model" / "model.json",
                          dump_json(net::model_file_to_json(description)));
    weights::write_safetensors(scratch / "model" / "model.safetensors", model.parameters(), {});
    shard::StreamHeader header;
    header.vocabulary.size = 23;
    header.vocabulary.type = "word";
    header.vocabulary.unk = 4;
    shard::PackWriter writer(scratch / "data", header, {});
    const std::vector<shard::TokenId> ids = test::scrambled(90, 23);
    writer.begin_document();
    writer.write(ids.data(), ids.size());
    writer.finish(std::nullopt);
    options.checkpoints = {(scratch / "model").string()};
    options.data = {(scratch / "data").string()};
  }
  test::ScratchFolder scratch;
  SweepOptions options;
};

Json row_of_sweep(const Folder& folder, machine::Precision precision) {
  SweepOptions options = folder.options;
  options.precision = precision;
  std::vector<Json> rows;
  run_sweep(options, [&rows](const Json& row) { rows.push_back(row); });
  REQUIRE(rows.size() == 1);
  return rows.front();
}

Json row_of_units(const Folder& folder, machine::Precision precision) {
  SweepOptions options = folder.options;
  options.precision = precision;
  return run_unit_sweep(options, Unit::kDocument, [](const UnitSum&) {});
}

}  // namespace

TEST_CASE("run_sweep: computes in the requested precision") {
  const Folder folder;
  const machine::OperationsOnly operations;
  const test::PlainBfloat16 plain;
  for (const auto& row : {row_of_sweep, row_of_units}) {
    const auto nll = [&](machine::Precision precision) {
      return row(folder, precision)["nll"].get<double>();
    };
    const double exact = nll(machine::Precision::kFloat32);
    CHECK(nll(machine::Precision::kFloat32) == exact);
    const double rounded = nll(machine::Precision::kBfloat16);
    CHECK(rounded != exact);
    CHECK(rounded == doctest::Approx(exact).epsilon(0.02));
  }
}

TEST_CASE("run_sweep: the losses in the file are those of the row") {
  Folder folder;
  folder.options.loss_file = (folder.scratch / "losses").string();
  const double nll = row_of_sweep(folder, machine::Precision::kFloat32)["nll"].get<double>();
  const std::string bytes = test::slurp(folder.scratch / "losses");
  std::vector<float> losses(89);
  REQUIRE(bytes.size() == losses.size() * sizeof(float));
  std::memcpy(losses.data(), bytes.data(), bytes.size());
  CHECK(std::accumulate(losses.begin(), losses.end(), 0.0) == doctest::Approx(nll).epsilon(1e-6));
}

TEST_CASE("run_unit_sweep: ends with the figures of the complete stream") {
  const Folder folder;
  const Json whole = row_of_sweep(folder, machine::Precision::kFloat32);
  const Json units = row_of_units(folder, machine::Precision::kFloat32);
  CHECK(whole["unknown_targets"].get<std::int64_t>() > 0);
  CHECK(units["unknown_targets"] == whole["unknown_targets"]);
  for (const char* key :
       {"nll", "perplexity", "standard_error", "known_perplexity", "known_standard_error"}) {
    CAPTURE(key);
    CHECK(units[key].get<double>() == doctest::Approx(whole[key].get<double>()).epsilon(1e-6));
  }
}

}  // namespace ql::eval
