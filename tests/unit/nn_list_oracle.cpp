#include "nn_list_oracle.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace ql::test {

ListOracle::ListOracle(const nn::Model& model)
    : network_(model.network()),
      recurrent_(network_.architecture == net::Architecture::kTransformerQl ||
                 network_.architecture == net::Architecture::kTransformerXl ||
                 network_.architecture == net::Architecture::kCompressive) {
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

// Zeros in place of what belongs to an earlier document.
State ListOracle::recall(const Kept& kept) const {
  const bool other = kept.newest < document_ && kept.computed < document_;
  return other ? State(kept.state.size(), 0.0) : kept.state;
}

// Zeros where nothing was ever kept: the memory of the start.
State ListOracle::at(const Place& place, std::int64_t index) const {
  if (index >= place.begin) {
    return place.segment[static_cast<std::size_t>(index - place.begin)];
  }
  const auto found = place.kept.find(index);
  return found == place.kept.end() ? State(static_cast<std::size_t>(network_.d_model), 0.0)
                                   : recall(found->second);
}

void ListOracle::enter(Place& place, std::vector<State> segment, const Scale& scale,
                       std::int64_t step) {
  // The segment ends with the newest state that this step completes.
  place.begin = (step + 1) * scale.shift - scale.segment;
  place.segment = std::move(segment);
  place.usage.clear();
}

// The oldest `shift` states of the segment will not be computed again.
void ListOracle::leave(Place& place, const Scale& scale, std::int64_t layer) const {
  if (compressed_ > 0 && layer >= 0) {
    const std::int64_t first = place.begin - scale.memory;
    const bool spread =
        network_.pool == net::Pool::kDilatedConvolution || network_.pool == net::Pool::kMostUsed;
    std::int64_t newest = first - 1;
    for (const State& state : compress(place, first, scale.segment, layer)) {
      newest += network_.rate;
      const std::int64_t covered = spread ? first + scale.segment - 1 : newest;
      place.compressed.push_back({state, covered, begin_});
    }
  }
  for (std::int64_t i = 0; recurrent_ && i < scale.shift; ++i) {
    const std::int64_t index = place.begin + i;
    place.kept[index] = {place.segment[static_cast<std::size_t>(i)],
                         (index + 1) * scale.granularity - 1, begin_};
  }
}

std::vector<State> ListOracle::run_layers(std::vector<State> states, const Scale& scale,
                                          std::int64_t step) {
  for (std::int64_t i = 0; i < scale.layers; ++i) {
    Place& place = places_[next_place_++];
    enter(place, std::move(states), scale, step);
    states = run_layer(place, scale, next_layer_);
    leave(place, scale, next_layer_++);
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
  if (network_.encoding != net::Encoding::kTransformerXl) {
    return 0;
  }
  const std::string name = network_.untie_r ? layer + "dec_attn." + which : which;
  return weights_.at(name)[static_cast<std::size_t>(index)];
}

State ListOracle::sinusoid(std::int64_t place) const {
  State result(static_cast<std::size_t>(network_.d_model));
  const std::int64_t half = network_.d_model / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(place) *
        std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(network_.d_model));
    result[static_cast<std::size_t>(i)] = std::sin(angle);
    result[static_cast<std::size_t>(half + i)] = std::cos(angle);
  }
  return result;
}

// What stands for a distance, all heads in a row.
State ListOracle::position(std::int64_t distance, const std::string& layer) const {
  const std::int64_t all = network_.n_head * network_.d_head;
  if (network_.clamp_len > 0) {
    distance = std::min(distance, network_.clamp_len);
  }
  switch (network_.encoding) {
    case net::Encoding::kTransformerXl:
      return product(layer + "dec_attn.r_net.weight", sinusoid(distance), 0, all);
    case net::Encoding::kShaw: {
      const auto row = weights_.at(layer + "dec_attn.r_emb").begin() + distance * all;
      return {row, row + all};
    }
    case net::Encoding::kAbsolute:
      break;
  }
  return State(static_cast<std::size_t>(all), 0.0);
}

// How much the query weighs a key, before they are made to sum to 1. `query_end` and `key_end` are
// distances from the newest place of the window.
double ListOracle::weigh(const State& query, const State& key, std::int64_t query_end,
                         std::int64_t key_end, std::int64_t head, const std::string& layer) const {
  const auto add = [](const State& x, std::size_t i, double y) { return x[i] + y; };
  const auto feature = [](double x) { return x > 0 ? x + 1 : std::exp(x); };
  const bool linear = network_.attention == net::Attention::kLinear;
  const State of_query = linear ? position(query_end, layer) : State();
  const State of_key = position(linear ? key_end : key_end - query_end, layer);
  double sum = 0;
  for (std::int64_t n = head * network_.d_head; n < (head + 1) * network_.d_head; ++n) {
    const auto i = static_cast<std::size_t>(n);
    const double u = bias(layer, "r_w_bias", n), v = bias(layer, "r_r_bias", n);
    sum += linear ? feature(add(query, i, u) + of_query[i]) * feature(add(key, i, v) + of_key[i])
                  : add(query, i, u) * key[i] + add(query, i, v) * of_key[i];
  }
  return linear ? sum : std::exp(sum / std::sqrt(static_cast<double>(network_.d_head)));
}

bool ListOracle::sees(std::int64_t distance, std::int64_t head, std::int64_t memory) const {
  const std::int64_t span = network_.same_length ? memory : network_.attention_window;
  const std::int64_t dilation = network_.attention_dilation.empty()
                                    ? 1
                                    : network_.attention_dilation[static_cast<std::size_t>(head)];
  return distance % dilation == 0 && (span == 0 || distance / dilation < span);
}

State ListOracle::attend(Place& place, std::int64_t index, const Scale& scale,
                         const std::string& layer) const {
  const std::int64_t heads = network_.n_head, width = network_.d_head, all = heads * width;
  const auto input = [&](const State& state) {
    return network_.pre_lnorm ? normalize(layer + "dec_attn.layer_norm", state) : state;
  };
  // Everything in sight and its distance, counted in places of the window.
  std::vector<std::pair<State, std::int64_t>> sights;
  for (std::int64_t other = index; other >= place.begin - scale.memory; --other) {
    sights.emplace_back(input(at(place, other)), index - other);
  }
  const std::int64_t nearest = index - place.begin + scale.memory + 1;
  for (std::int64_t i = 0; i < compressed_; ++i) {
    const auto count = static_cast<std::int64_t>(place.compressed.size());
    sights.emplace_back(
        input(i < count ? recall(place.compressed[static_cast<std::size_t>(count - 1 - i)])
                        : State(static_cast<std::size_t>(network_.d_model), 0.0)),
        nearest + i);
  }
  const std::string qkv = layer + "dec_attn.qkv_net.weight";
  const State query = product(qkv, input(at(place, index)), 0, all);
  const std::int64_t end = place.begin + scale.segment - 1 - index;
  State sums(static_cast<std::size_t>(all), 0.0);
  const bool linear = network_.attention == net::Attention::kLinear;
  std::vector<double> totals(static_cast<std::size_t>(heads), linear ? 1e-6 : 0.0);
  std::vector<std::vector<double>> weights(static_cast<std::size_t>(heads));  // by sight
  for (const auto& [seen, distance] : sights) {
    const State key = product(qkv, seen, all, all);
    const State value = product(qkv, seen, 2 * all, all);
    for (std::int64_t head = 0; head < heads; ++head) {
      const double weight = sees(distance, head, scale.memory + compressed_)
                                ? weigh(query, key, end, end + distance, head, layer)
                                : 0;
      totals[static_cast<std::size_t>(head)] += weight;
      weights[static_cast<std::size_t>(head)].push_back(weight);
      for (std::int64_t n = head * width; n < (head + 1) * width; ++n) {
        sums[static_cast<std::size_t>(n)] += weight * value[static_cast<std::size_t>(n)];
      }
    }
  }
  for (std::size_t n = 0; n < sums.size(); ++n) {
    sums[n] /= totals[n / static_cast<std::size_t>(width)];
  }
  for (std::size_t head = 0; head < weights.size(); ++head) {
    for (std::int64_t i = 0; i < nearest; ++i) {  // the sights before the compressed ones
      place.usage[index - i] += weights[head][static_cast<std::size_t>(i)] / totals[head] /
                                static_cast<double>(heads * scale.segment);
    }
  }
  return product(layer + "dec_attn.o_net.weight", sums, 0, network_.d_model);
}

std::vector<State> ListOracle::run_layer(Place& place, const Scale& scale,
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

// What becomes of the `count` states from the index `first` on.
std::vector<State> ListOracle::compress(const Place& place, std::int64_t first, std::int64_t count,
                                        std::int64_t layer) const {
  const std::int64_t rate = network_.rate;
  std::vector<State> result;
  if (network_.pool == net::Pool::kMostUsed) {
    std::map<std::int64_t, State> kept;
    while (static_cast<std::int64_t>(kept.size()) < count / rate) {
      std::int64_t best = -1;
      double most = -1;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto found = place.usage.find(first + i);
        const double usage = found == place.usage.end() ? 0.0 : found->second;
        if (kept.count(i) == 0 && usage >= most) {  // of two equals the newer
          best = i;
          most = usage;
        }
      }
      kept[best] = at(place, first + best);
    }
    for (const auto& [index, state] : kept) {
      result.push_back(state);
    }
    return result;
  }
  const bool dilated = network_.pool == net::Pool::kDilatedConvolution;
  for (std::int64_t k = 0; k < count / rate; ++k) {
    result.push_back(dilated ? squeeze(place, first + k, count / rate, layer)
                             : squeeze(place, first + k * rate, 1, layer));
  }
  return result;
}

// The `rate` states from the index `first` on, every `stride`-th, as one.
State ListOracle::squeeze(const Place& place, std::int64_t first, std::int64_t stride,
                          std::int64_t layer) const {
  State result = at(place, first);
  if (network_.pool == net::Pool::kConvolution || network_.pool == net::Pool::kDilatedConvolution) {
    const std::string name = "layers." + std::to_string(layer) + ".compress.";
    const std::size_t size = result.size(), rate = static_cast<std::size_t>(network_.rate);
    result = weights_.at(name + "bias");
    for (std::size_t i = 0; i < rate; ++i) {
      const State state = at(place, first + static_cast<std::int64_t>(i) * stride);
      for (std::size_t from = 0; from < size; ++from) {
        for (std::size_t to = 0; to < size; ++to) {
          result[to] += weights_.at(name + "weight")[(to * size + from) * rate + i] * state[from];
        }
      }
    }
    return result;
  }
  const bool is_maximum = network_.pool == net::Pool::kMax;
  for (std::int64_t i = 1; i < network_.rate; ++i) {
    const State state = at(place, first + i * stride);
    for (std::size_t n = 0; n < result.size(); ++n) {
      result[n] = is_maximum ? std::max(result[n], state[n]) : result[n] + state[n];
    }
  }
  for (double& value : result) {
    value /= is_maximum ? 1.0 : static_cast<double>(network_.rate);
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
                                       const std::vector<std::int64_t>& targets,
                                       const std::vector<std::int64_t>& document_starts) {
  const std::vector<Scale> scales = make_scales(lengths);
  const std::size_t count = network_.scales.size();
  compressed_ = lengths.compressed_memory;
  places_.assign(static_cast<std::size_t>(network_.layers()) + count, Place());
  std::vector<double> result;
  const auto segment = static_cast<std::size_t>(lengths.segment);
  for (std::size_t start = 0; start < tokens.size(); start += segment) {
    const auto step = static_cast<std::int64_t>(start / segment);
    begin_ = static_cast<std::int64_t>(start);
    document_ = 0;
    for (const std::int64_t document : document_starts) {
      document_ = network_.reset_memory_at_documents && document <= begin_ ? document : document_;
    }
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
      if (network_.encoding == net::Encoding::kAbsolute) {
        const State of_place = sinusoid(static_cast<std::int64_t>(p));
        std::transform(embedded.begin(), embedded.end(), of_place.begin(), embedded.begin(),
                       std::plus<>());
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
          states.push_back(squeeze(output, k * network_.rate, 1, -1));
        }
      }
      leave(output, scale, -1);
    }
    average = run_layers(std::move(average), scales.back(), step);
    for (std::size_t p = 0; p < segment; ++p) {
      result.push_back(loss(average[p], targets[start + p]));
    }
  }
  return result;
}

}  // namespace ql::test
