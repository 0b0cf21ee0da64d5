// The network's step as the design tells it, slow and obvious, for one stream: every state that was
// ever kept stays in a list under its absolute index, and plain loops over doubles do the rest.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "net/network.h"
#include "nn/model.h"

namespace ql::test {

using State = std::vector<double>;

class ListOracle {
 public:
  explicit ListOracle(const nn::Model& model);

  // The losses of `targets` when `tokens`, a whole number of segments, are read from the start.
  // A network that resets its memory at documents does so at `document_starts`, ascending.
  std::vector<double> losses(const net::Lengths& lengths, const std::vector<std::int64_t>& tokens,
                             const std::vector<std::int64_t>& targets,
                             const std::vector<std::int64_t>& document_starts = {});

 private:
  // A state of an earlier step.
  struct Kept {
    State state;
    std::int64_t newest = 0;    // token that it covers
    std::int64_t computed = 0;  // the token that its step began with
  };
  // The states of one place (a layer's input or a scale's output): the segment begins at the
  // absolute index `begin`, the kept states of all earlier steps lie before it.
  struct Place {
    std::map<std::int64_t, Kept> kept;
    std::int64_t begin = 0;
    std::vector<State> segment;
    std::vector<Kept> compressed;          // of a compressive network: all there ever were
    std::map<std::int64_t, double> usage;  // in this step: attention to the states, by index
  };
  struct Scale {
    std::int64_t layers, segment, memory, granularity, shift;
  };

  std::vector<Scale> make_scales(const net::Lengths& lengths) const;
  State recall(const Kept& kept) const;
  State at(const Place& place, std::int64_t index) const;
  void enter(Place& place, std::vector<State> segment, const Scale& scale, std::int64_t step);
  void leave(Place& place, const Scale& scale, std::int64_t layer) const;
  std::vector<State> run_layers(std::vector<State> states, const Scale& scale, std::int64_t step);
  std::vector<State> run_layer(Place& place, const Scale& scale, std::int64_t layer) const;
  State attend(Place& place, std::int64_t index, const Scale& scale,
               const std::string& layer) const;
  State sinusoid(std::int64_t place) const;
  State position(std::int64_t distance, const std::string& layer) const;
  double weigh(const State& query, const State& key, std::int64_t query_end, std::int64_t key_end,
               std::int64_t head, const std::string& layer) const;
  bool sees(std::int64_t distance, std::int64_t head, std::int64_t memory) const;
  std::vector<State> compress(const Place& place, std::int64_t first, std::int64_t count,
                              std::int64_t layer) const;
  State squeeze(const Place& place, std::int64_t first, std::int64_t stride,
                std::int64_t layer) const;

  State product(const std::string& name, const State& input, std::int64_t first_row,
                std::int64_t rows) const;
  State normalize(const std::string& name, State input) const;
  double bias(const std::string& layer, const std::string& which, std::int64_t index) const;
  double loss(const State& state, std::int64_t target) const;

  net::Network network_;
  bool recurrent_;
  std::int64_t compressed_ = 0;  // n_cm
  std::map<std::string, std::vector<double>> weights_;
  std::vector<Place> places_;
  std::size_t next_place_ = 0;
  std::int64_t next_layer_ = 0;
  std::int64_t begin_ = 0;     // the first token of the step
  std::int64_t document_ = 0;  // the first token of its document
};

}  // namespace ql::test
