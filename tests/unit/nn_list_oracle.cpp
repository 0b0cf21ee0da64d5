#include "nn_list_oracle.h"

#include <algorithm>
#include <cmath>

#include "nn_support.h"
#include "torch_doctest.h"

namespace ql::test {

ListOracle::ListOracle(const nn::Model& model)
    : network_(model.network()),
      recurrent_(network_.architecture == net::Architecture::kTransformerQl ||
                 network_.architecture == net::Architecture::kTransformerXl) {
  for (const nn::NamedTensor& parameter : model.parameters()) {
    const at::Tensor flat = parameter.tensor.detach().contiguous();
    weights_[parameter.name].assign(flat.data_ptr<double>(),
                                    flat.data_ptr<double>() + flat.numel());
  }
}

std::vector<ListOracle::Scale> ListOracle::make_scales(const net::Lengths& lengths) const {
  std::vector<Scale> scales;
  const std::int64_t window = lengths.segment + lengths.memory;
  Scale scale{0, lengths.segment, lengths.memory, 1, lengths.segment};
  for (const std::int64_t layers : network_.scales) {
    scale.layers = layers;
    scales.push_back(scale);
    scale.granularity *= network_.rate;
    scale.shift = lengths.segment / scale.granularity;
    scale.segment = recurrent_ ? std::min(window / network_.rate, scale.segment) : scale.shift;
    scale.memory = recurrent_ ? window - scale.segment : 0;
  }
  scales.push_back({network_.output_layers, lengths.segment, lengths.memory, 1, lengths.segment});
  return scales;
}

// Zeros where nothing was ever kept: the memory of the start.
State ListOracle::at(const Place& place, std::int64_t index) const {
  if (index >= place.begin) {
    return place.segment[static_cast<std::size_t>(index - place.begin)];
  }
  const auto found = place.kept.find(index);
  return found == place.kept.end() ? State(static_cast<std::size_t>(network_.d_model), 0.0)
                                   : found->second;
}

void ListOracle::enter(Place& place, std::vector<State> segment, const Scale& scale,
                       std::int64_t step) {
  // The segment ends with the newest state that this step completes.
  place.begin = (step + 1) * scale.shift - scale.segment;
  place.segment = std::move(segment);
}

// The oldest `shift` states of the segment will not be computed again.
void ListOracle::leave(Place& place, const Scale& scale) const {
  for (std::int64_t i = 0; recurrent_ && i < scale.shift; ++i) {
    place.kept[place.begin + i] = place.segment[static_cast<std::size_t>(i)];
  }
}

std::vector<State> ListOracle::run_layers(std::vector<State> states, const Scale& scale,
                                          std::int64_t step) {
  for (std::int64_t i = 0; i < scale.layers; ++i) {
    Place& place = places_[next_place_++];
    enter(place, std::move(states), scale, step);
    states = run_layer(place, scale, next_layer_++);
    leave(place, scale);
  }
  return states;
}

State ListOracle::product(const std::string& name, const State& input, std::int64_t first_row,
                          std::int64_t rows) const {
  const std::vector<double>& weight = weights_.at(name);
  State output(static_cast<std::size_t>(rows), 0.0);
  for (std::size_t row = 0; row < output.size(); ++row) {
    for (std::size_t i = 0; i < input.size(); ++i) {
      output[row] +=
          weight[(static_cast<std::size_t>(first_row) + row) * input.size() + i] * input[i];
    }
  }
  return output;
}

State ListOracle::normalize(const std::string& name, State input) const {
  const auto size = static_cast<double>(input.size());
  double mean = 0, variance = 0;
  for (const double value : input) {
    mean += value / size;
  }
  for (const double value : input) {
    variance += (value - mean) * (value - mean) / size;
  }
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i] = (input[i] - mean) / std::sqrt(variance + 1e-5) * weights_.at(name + ".weight")[i] +
               weights_.at(name + ".bias")[i];
  }
  return input;
}

double ListOracle::bias(const std::string& layer, const std::string& which,
                        std::int64_t index) const {
  const std::string name = network_.untie_r ? layer + "dec_attn." + which : which;
  return weights_.at(name)[static_cast<std::size_t>(index)];
}

State ListOracle::attend(const Place& place, std::int64_t index, const Scale& scale,
                         const std::string& layer) const {
  const std::int64_t heads = network_.n_head, width = network_.d_head, all = heads * width;
  const auto input = [&](std::int64_t of) {
    State state = at(place, of);
    return network_.pre_lnorm ? normalize(layer + "dec_attn.layer_norm", std::move(state)) : state;
  };
  const std::string qkv = layer + "dec_attn.qkv_net.weight";
  const State query = product(qkv, input(index), 0, all);
  State sums(static_cast<std::size_t>(all), 0.0);
  std::vector<double> totals(static_cast<std::size_t>(heads), 0.0);
  for (std::int64_t other = place.begin - scale.memory; other <= index; ++other) {
    const State key = product(qkv, input(other), all, all);
    const State value = product(qkv, input(other), 2 * all, all);
    State sinusoid(static_cast<std::size_t>(network_.d_model));
    const std::int64_t half = network_.d_model / 2;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(index - other) *
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(network_.d_model));
      sinusoid[static_cast<std::size_t>(i)] = std::sin(angle);
      sinusoid[static_cast<std::size_t>(half + i)] = std::cos(angle);
    }
    const State position = product(layer + "dec_attn.r_net.weight", sinusoid, 0, all);
    for (std::int64_t head = 0; head < heads; ++head) {
      double score = 0;
      for (std::int64_t n = head * width; n < (head + 1) * width; ++n) {
        const auto i = static_cast<std::size_t>(n);
        score += (query[i] + bias(layer, "r_w_bias", n)) * key[i];
        score += (query[i] + bias(layer, "r_r_bias", n)) * position[i];
      }
      const double weight = std::exp(score / std::sqrt(static_cast<double>(width)));
      totals[static_cast<std::size_t>(head)] += weight;
      for (std::int64_t n = head * width; n < (head + 1) * width; ++n) {
        sums[static_cast<std::size_t>(n)] += weight * value[static_cast<std::size_t>(n)];
      }
    }
  }
  for (std::size_t n = 0; n < sums.size(); ++n) {
    sums[n] /= totals[n / static_cast<std::size_t>(width)];
  }
  return product(layer + "dec_attn.o_net.weight", sums, 0, network_.d_model);
}

std::vector<State> ListOracle::run_layer(const Place& place, const Scale& scale,
                                         std::int64_t layer_index) const {
  const std::string layer = "layers." + std::to_string(layer_index) + ".";
  const auto add = [](State a, const State& b) {
    std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus<>());
    return a;
  };
  std::vector<State> outputs;
  for (std::int64_t i = 0; i < scale.segment; ++i) {
    const std::int64_t index = place.begin + i;
    State state = add(at(place, index), attend(place, index, scale, layer));
    if (!network_.pre_lnorm) {
      state = normalize(layer + "dec_attn.layer_norm", state);
    }
    const State input = network_.pre_lnorm ? normalize(layer + "pos_ff.layer_norm", state) : state;
    State inner = add(product(layer + "pos_ff.CoreNet.0.weight", input, 0, network_.d_inner),
                      weights_.at(layer + "pos_ff.CoreNet.0.bias"));
    for (double& value : inner) {
      value = std::max(value, 0.0);
    }
    const State outer = add(product(layer + "pos_ff.CoreNet.3.weight", inner, 0, network_.d_model),
                            weights_.at(layer + "pos_ff.CoreNet.3.bias"));
    state = add(state, outer);
    outputs.push_back(network_.pre_lnorm ? state : normalize(layer + "pos_ff.layer_norm", state));
  }
  return outputs;
}

State ListOracle::pool(const Place& place, std::int64_t coarse_index) const {
  State result = at(place, coarse_index * network_.rate);
  for (std::int64_t i = 1; i < network_.rate; ++i) {
    const State state = at(place, coarse_index * network_.rate + i);
    for (std::size_t n = 0; n < result.size(); ++n) {
      result[n] =
          network_.pool == net::Pool::kMax ? std::max(result[n], state[n]) : result[n] + state[n];
    }
  }
  if (network_.pool == net::Pool::kMean) {
    for (double& value : result) {
      value /= static_cast<double>(network_.rate);
    }
  }
  return result;
}

double ListOracle::loss(const State& state, std::int64_t target) const {
  State logits = product("word_emb.emb_layers.0.weight", state, 0, network_.vocab_size);
  double sum = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    logits[id] += weights_.at("crit.out_layers.0.bias")[id];
    sum += std::exp(logits[id]);
  }
  return std::log(sum) - logits[static_cast<std::size_t>(target)];
}

std::vector<double> ListOracle::losses(const net::Lengths& lengths,
                                       const std::vector<std::int64_t>& tokens,
                                       const std::vector<std::int64_t>& targets) {
  const std::vector<Scale> scales = make_scales(lengths);
  const std::size_t count = network_.scales.size();
  places_.assign(static_cast<std::size_t>(network_.layers()) + count, Place());
  std::vector<double> result;
  const auto segment = static_cast<std::size_t>(lengths.segment);
  for (std::size_t start = 0; start < tokens.size(); start += segment) {
    const auto step = static_cast<std::int64_t>(start / segment);
    next_place_ = 0;
    next_layer_ = 0;
    std::vector<State> states;
    for (std::size_t p = 0; p < segment; ++p) {
      State embedded;
      for (std::int64_t n = 0; n < network_.d_model; ++n) {
        embedded.push_back(weights_.at("word_emb.emb_layers.0.weight")[static_cast<std::size_t>(
                               tokens[start + p] * network_.d_model + n)] *
                           std::sqrt(static_cast<double>(network_.d_model)));
      }
      states.push_back(embedded);
    }
    std::vector<State> average(segment, State(static_cast<std::size_t>(network_.d_model), 0.0));
    for (std::size_t i = 0; i < count; ++i) {
      const Scale& scale = scales[i];
      states = run_layers(std::move(states), scale, step);
      Place& output = places_[next_place_++];
      enter(output, states, scale, step);
      for (std::size_t p = 0; p < segment; ++p) {
        // The last state whose newest token, (index + 1) * granularity - 1, is not after p.
        const auto token = static_cast<std::int64_t>(start + p);
        const std::int64_t index = (token + 1) / scale.granularity - 1;
        if (!recurrent_ && index < output.begin) {
          continue;
        }
        const State state = at(output, index);
        for (std::size_t n = 0; n < state.size(); ++n) {
          average[p][n] += state[n] / static_cast<double>(count);
        }
      }
      if (i + 1 < count) {
        const Scale& next = scales[i + 1];
        states.clear();
        for (std::int64_t k = (step + 1) * next.shift - next.segment; k < (step + 1) * next.shift;
             ++k) {
          states.push_back(pool(output, k));
        }
      }
      leave(output, scale);
    }
    average = run_layers(std::move(average), scales.back(), step);
    for (std::size_t p = 0; p < segment; ++p) {
      result.push_back(loss(average[p], targets[start + p]));
    }
  }
  return result;
}

namespace {

struct Case {
  net::Architecture architecture;
  std::vector<std::int64_t> scales;
  std::int64_t output_layers;
  net::Lengths lengths;
  std::int64_t rate;
};

constexpr auto kQl = net::Architecture::kTransformerQl;
constexpr auto kXl = net::Architecture::kTransformerXl;
constexpr auto kMultiScale = net::Architecture::kMultiScale;
constexpr auto kVanilla = net::Architecture::kVanilla;

const Case kCases[] = {
    {kQl, {2, 1}, 1, {4, 4, 0}, 2},     // all lengths equal
    {kQl, {1, 1}, 0, {4, 12, 0}, 2},    // segments of scale 2 recompute old states; no output block
    {kQl, {1, 1}, 1, {8, 4, 0}, 2},     // memory < segment
    {kQl, {2, 1}, 1, {8, 0, 0}, 2},     // no memory at scale 1, but at scale 2
    {kQl, {1, 2, 1}, 1, {4, 4, 0}, 2},  // three scales
    {kQl, {1, 1, 1}, 2, {8, 16, 0}, 2},  // three scales, long memory
    {kQl, {1, 1}, 1, {8, 24, 0}, 4},     // rate 4
    {kQl, {2, 1}, 1, {3, 9, 0}, 3},      // rate 3
    {kQl, {1, 1, 1}, 1, {9, 3, 0}, 3},   // rate 3 three times
    {kQl, {1, 1}, 1, {2, 0, 0}, 2},      // the smallest
    {kQl, {2}, 1, {3, 2, 0}, 2},         // one scale and an output block
    {kXl, {3}, 0, {3, 5, 0}, 2},
    {kXl, {2}, 0, {1, 4, 0}, 2},
    {kXl, {2}, 0, {4, 1, 0}, 2},
    {kXl, {2}, 0, {4, 0, 0}, 2},
    {kMultiScale, {1, 1}, 1, {6, 0, 0}, 2},
    {kMultiScale, {1, 2, 1}, 1, {8, 0, 0}, 2},
    {kMultiScale, {1, 1}, 1, {6, 0, 0}, 3},
    {kVanilla, {2}, 0, {5, 0, 0}, 2},
    {kVanilla, {2}, 0, {1, 0, 0}, 2},
};

}  // namespace

TEST_CASE("the model's losses equal those of the list of all states") {
  std::uint64_t seed = 0;
  for (const Case& entry : kCases) {
    for (int variant = 0; variant < 4; ++variant) {
      net::Network network =
          small_network(entry.architecture, entry.scales, entry.output_layers, entry.lengths);
      network.rate = entry.rate;
      network.pre_lnorm = variant % 2 == 0;
      network.untie_r = variant / 2 == 0;
      network.pool = variant == 1 || variant == 2 ? net::Pool::kMean : net::Pool::kMax;
      const std::int64_t length = entry.lengths.segment * 6;
      const nn::Model model = random_model(network, ++seed);
      // Two streams, so that a mix-up of streams would show.
      const at::Tensor tokens = random_tokens(2, length, network.vocab_size, seed);
      const at::Tensor targets = random_tokens(2, length, network.vocab_size, seed + 1000);
      const at::Tensor losses = read_streams(model, entry.lengths, tokens, targets);
      CAPTURE(net::to_text(entry.architecture));
      CAPTURE(entry.lengths.segment);
      CAPTURE(entry.lengths.memory);
      CAPTURE(entry.scales.size());
      CAPTURE(variant);
      for (std::int64_t stream = 0; stream < 2; ++stream) {
        const auto list = [&](const at::Tensor& ids) {
          const auto* data = ids.data_ptr<std::int64_t>() + stream * length;
          return std::vector<std::int64_t>(data, data + length);
        };
        ListOracle oracle(model);
        std::vector<double> expected = oracle.losses(entry.lengths, list(tokens), list(targets));
        const at::Tensor wanted = at::from_blob(expected.data(), {length}, at::kDouble);
        CHECK(largest_difference(losses[stream], wanted) < 1e-9);
      }
    }
  }
}

}  // namespace ql::test
