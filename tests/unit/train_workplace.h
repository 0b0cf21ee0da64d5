// Makes a folder with data, in which the tests train with train/trainer.h.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "scratch.h"
#include "torch_doctest.h"
#include "train/trainer.h"
#include "train_support.h"
#include "unit/complaint.h"

namespace ql::test {

using train::TrainingState;
using train::TrainingTask;

struct Workplace {
  ScratchFolder scratch;
  TrainingTask task;

  explicit Workplace(const net::Network& network) {
    // 16 steps an epoch
    pack(scratch / "data", scrambled(200, 23), 23, "made up", {10, 70, 75, 150});
    pack(scratch / "valid", scrambled(90, 23), 23, "made up", {8, 50});
    task.run = scratch / "run";
    task.network = network;
    task.config = tiny_config();
    task.provenance = Json::object();
  }
  TrainingState train(const char* data = "data", const char* valid = "valid") const {
    shard::MultiReader data_reader({(scratch / data).string()});
    shard::MultiReader valid_reader({(scratch / valid).string()});
    return train::train(task, data_reader, valid_reader);
  }
  std::string refusal(const char* data = "data", const char* valid = "valid") const {
    return complaint([&] { train(data, valid); });
  }
  // Returns the log without values that depend on the clock.
  std::vector<Json> log() const {
    std::vector<Json> records;
    const std::string text = slurp(task.run / "log.jsonl");
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      Json record = parse_json(text.substr(begin, end - begin), "log");
      for (const char* key : {"elapsed", "seconds", "tokens_per_second"}) record.erase(key);
      records.push_back(record);
      begin = end + 1;
    }
    return records;
  }
  std::string file(const char* name) const { return slurp(task.run / name); }
  // Flips a bit of a file of RUN, which may be a second name of another checkpoint's file.
  void damage(const char* name) const {
    std::string bytes = file(name);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::filesystem::remove(task.run / name);
    spill(task.run / name, bytes);
  }
};

inline void check_same_result(const Workplace& a, const Workplace& b) {
  for (const char* checkpoint : {"last", "best"}) {
    for (const char* name : {"model.safetensors", "optimizer.safetensors", "memory.safetensors"}) {
      const std::string path = std::string(checkpoint) + "/" + name;
      CAPTURE(path);
      const bool same = a.file(path.c_str()) == b.file(path.c_str());
      CHECK(same);
    }
  }
  CHECK(a.log() == b.log());
}

}  // namespace ql::test
