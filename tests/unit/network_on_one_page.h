// The network on one page: all that the family computes, from the tokens of a stream to their
// losses, in double precision. Tests compare the library with it, and readers of the papers can
// check it from top to bottom. It reads one stream by plain operations. It shares with the library
// only the names of the keys (net/network.h) and of the places of dropout.
//
// Figures and sections without a name are those of the Transformer-QL paper. XL is Transformer-XL
// (Dai et al., 2019) with its public code, CT the Compressive Transformer (Rae et al., 2020).
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "net/network.h"
#include "nn/dropout.h"

namespace ql::test {

struct NetworkOnOnePage {
  using Tensor = at::Tensor;
  using Int = std::int64_t;
  using Ints = std::vector<Int>;
  using Site = nn::DropoutSite;

  net::Network network;
  std::map<std::string, Tensor> weights;  // float64, by their names in a checkpoint
  // Training replaces elements of `x` by zeros. At kDroppath `x` holds the weights of the scales.
  std::function<Tensor(const Tensor& x, Site site, Int step)> dropout = {};

  struct Reading {
    Tensor outputs;         // [tokens, d_model], the last layer's
    Tensor reconstruction;  // [steps], the auxiliary loss (CT, section 3.2)
  };

  // Figure 2e: reads on in a stream by complete segments. `documents` are the tokens at which
  // documents start, counted from the beginning of the stream.
  Reading read(const net::Lengths& lengths, const Ints& tokens, const Ints& documents = {}) {
    recurrent = network.architecture != net::Architecture::kMultiScale &&
                network.architecture != net::Architecture::kVanilla;
    const auto scales = static_cast<Int>(network.scales.size());
    std::vector<Tensor> outputs, reconstructions;
    n_s = lengths.segment, n_cm = lengths.compressed_memory;
    const Int end = begin + static_cast<Int>(tokens.size());
    for (auto token = tokens.begin(); begin < end; begin += n_s, ++step) {  // line 5
      layer = 0;
      forget_other_documents(documents);
      reconstruction = zeros({});
      draw_sinusoids(longest_window(lengths));
      std::vector<Tensor> embedded;
      for (Int p = 0; p < n_s; ++p) embedded.push_back(embed(*token++, p));  // line 6
      Tensor s = drop(at::stack(embedded), Site::kEmbedding), average = at::zeros_like(s);
      const Tensor share = drop(at::ones(scales, at::kDouble) / scales, Site::kDroppath);
      Tensor finer;                                   // Funnel-Transformer (Dai et al., 2020)
      Int n_m = lengths.memory, shift = n_s;          // line 8
      for (Int scale = 0; scale < scales; ++scale) {  // line 11
        for (Int l = 0; l < network.scales[scale]; ++l) {
          s = run_layer(s, n_m, shift, l == 0 ? finer : Tensor());
        }
        const Tensor window =
            join("scale" + std::to_string(scale), s, newest_of(s, shift), n_m, shift);
        // Line 17: every token takes the newest state that covers no later token, and zeros if
        // there is none. The memory is that before its shift.
        const Tensor seen =
            at::arange(begin, begin + n_s).unsqueeze(1).ge(newest_of(window, shift));
        const Tensor sources =
            at::cat({zeros({1, network.d_model}), mapped(window, scale, "narrow")});
        average = average + share[scale] * sources.index({seen.sum(1)});
        if (scale + 1 < scales) {                                                 // line 18
          const Int length = std::min(window.size(0) / network.rate, s.size(0));  // section 2.3
          n_m = recurrent ? window.size(0) - length : 0;
          s = mapped(last(length, compress(window)), scale + 1, "widen");  // line 19
          if (network.query_only_pooling) {
            finer = mapped(last(length * network.rate, window), scale + 1, "widen");
          }
          shift /= network.rate;  // line 20
        }
      }
      s = average;  // line 24
      for (Int l = 0; l < network.output_layers; ++l) s = run_layer(s, lengths.memory, n_s);
      outputs.push_back(drop(s, Site::kFinal));
      reconstructions.push_back(reconstruction / layer);
    }
    return {at::cat(outputs), at::stack(reconstructions)};
  }

  // Donahue et al. (2019): a coarser scale may have wider states.
  Tensor mapped(const Tensor& s, Int scale, const std::string& how) const {
    const auto map = weights.find("scales." + std::to_string(scale) + "." + how + ".weight");
    return map == weights.end() ? s : at::linear(s, map->second);
  }

  // Encodes the distances as vectors of every width.
  void draw_sinusoids(Int count) {
    Ints widths = network.scale_widths;
    if (widths.empty()) widths = {network.d_model};
    sinusoids_of_distances.clear();
    for (Int scale = 0; scale < static_cast<Int>(widths.size()); ++scale) {
      const Int width = widths[scale];
      if (sinusoids_of_distances.count(width) > 0) continue;
      const Tensor all = sinusoids(count, width);
      sinusoids_of_distances[width] = dropout ? dropout(all, {Site::kPosition, scale}, step) : all;
    }
  }

  // Returns the number of states in the longest window of all layers.
  Int longest_window(const net::Lengths& lengths) const {
    Int n_w = n_cm + lengths.memory + n_s, longest = n_w;
    if (!network.query_only_pooling) return longest;
    for (Int count = n_s, scale = 1; scale < static_cast<Int>(network.scales.size()); ++scale) {
      count = recurrent ? std::min(n_w / network.rate, count) : count / network.rate;
      longest = std::max(longest, (recurrent ? n_w - count : 0) + count * network.rate);
    }
    return longest;
  }

  // Line 6: turns a token at a place of its segment into the vector that enters the network.
  Tensor embed(Int token, Int place) const {
    const Int cluster = cluster_of(token);
    Tensor x = rows("word_emb.emb_layers.", cluster, ".weight")[token - begin_of(cluster)];
    const auto projection = weights.find("word_emb.emb_projs." + table_of(cluster));
    if (projection != weights.end()) x = at::mv(projection->second, x);
    x = x * std::sqrt(network.d_model);
    return network.encoding == net::Encoding::kAbsolute
               ? x + sinusoids(place + 1, network.d_model)[place]
               : x;
  }

  // Returns -log p(target) by the adaptive softmax of XL's code. Without cutoffs it is a plain one.
  Tensor loss(const Tensor& output, Int target) const {
    const Int cluster = cluster_of(target);
    Tensor head = logits(output, 0);
    if (!network.cutoffs.empty()) {  // cluster i has column -i of the head
      head = at::cat({head, at::mv(weights.at("crit.cluster_weight"), narrowed(output, 0)) +
                                weights.at("crit.cluster_bias")});
    }
    if (cluster == 0) return -at::log_softmax(head, 0)[target];
    return -at::log_softmax(head, 0)[-cluster] -
           at::log_softmax(logits(output, cluster), 0)[target - begin_of(cluster)];
  }

  // Figure 2b: a Transformer-XL layer. With pre_lnorm the norms come before attention and
  // feed-forward, and memories keep the states before the norm. The keys of the segment are those
  // of `finer`, if it is given.
  Tensor run_layer(const Tensor& s, Int n_m, Int shift, const Tensor& finer = {}) {
    const bool before = network.pre_lnorm;
    const std::string place = std::to_string(layer);
    const Tensor recent = join("m" + place, s, newest_of(s, shift), n_m, shift);
    const Tensor keys = finer.defined() ? at::cat({recent.narrow(0, 0, n_m), finer}) : recent;
    const Tensor window =
        at::cat({memory_of("cm" + place, n_cm, s.size(1)).states, keys});  // CT, section 3
    Tensor usage;
    Tensor x = s + drop(attend(window, s, finer.defined() ? network.rate : 1, usage),
                        Site::kAttentionOutput);
    if (!before) x = norm("dec_attn", x);
    const Tensor inner = linear("pos_ff.CoreNet.0", before ? norm("pos_ff", x) : x).relu();
    x = x + drop(linear("pos_ff.CoreNet.3", drop(inner, Site::kInner)), Site::kFeedForward);
    if (!before) x = norm("pos_ff", x);
    if (n_cm > 0) compress_memory("cm" + place, s, recent, usage.narrow(0, n_cm, n_s));
    ++layer;
    return x;
  }

  // XL, section 3.3. The states are the last ones of the window, every `apart` places, and attend
  // to it. `usage` becomes the share of attention that each state of the window gets on average. h
  // counts heads, i queries, j keys.
  Tensor attend(const Tensor& window, const Tensor& states, Int apart, Tensor& usage) const {
    const Int n_w = window.size(0), heads = network.n_head, count = states.size(0);
    const Int memory = n_w - count * apart;
    const Tensor places = memory - 1 + at::arange(1, count + 1) * apart;
    const Tensor distance = places.unsqueeze(1) - at::arange(n_w);  // [i, j]
    Ints dilations = network.attention_dilation;
    dilations.resize(static_cast<std::size_t>(heads), 1);
    const Tensor stride = at::tensor(dilations).view({heads, 1, 1});
    Tensor hidden = distance.lt(0).logical_or(distance.remainder(stride).ne(0));  // [h, i, j]
    const Int span = network.same_length ? memory : network.attention_window;
    if (span > 0) hidden = hidden.logical_or(distance.ge(stride * span));

    const Tensor qkv = project(window), q = project(states).select(1, 0), k = qkv.select(1, 1);
    Tensor r = zeros({n_w, 1, 1}), u = zeros({1}), v = u;  // r encodes the distances 0, 1, ...
    if (network.encoding == net::Encoding::kShaw) {        // Shaw et al. (2018)
      r = weight("dec_attn.r_emb").index({at::arange(n_w).clamp_max(network.clamp_len)});
    } else if (network.encoding == net::Encoding::kTransformerXl) {
      const Tensor& table = sinusoids_of_distances.at(window.size(1));
      r = at::linear(table.narrow(0, 0, n_w), weight("dec_attn.r_net.weight"))
              .view({n_w, heads, network.d_head});
      u = network.untie_r ? weight("dec_attn.r_w_bias") : weights.at("r_w_bias");
      v = network.untie_r ? weight("dec_attn.r_r_bias") : weights.at("r_r_bias");
    }
    Tensor share;                                        // [h, i, j]
    if (network.attention == net::Attention::kLinear) {  // Katharopoulos et al. (2020)
      const auto feature = [](const Tensor& x) { return at::elu(x) + 1; };
      const Tensor place = r.flip(0);  // Features use places from the window's end, not distances.
      const Tensor of_queries = feature(q + u + place.index({places}));
      share = at::einsum("ihn,jhn->hij", {of_queries, feature(k + v + place)});
      share = share.masked_fill(hidden, 0);
      share = share / (share.sum(-1, true) + 1e-6);
    } else {
      const Tensor content = at::einsum("ihn,jhn->hij", {q + u, k});
      const Tensor position = at::einsum("ihn,ijhn->hij", {q + v, r.index({distance.abs()})});
      share = softmax((content + position).masked_fill(hidden, -INFINITY));
    }
    usage = share.mean(at::IntArrayRef{0, 1});
    share = drop(share, Site::kAttentionProbability);
    const Tensor taken = at::einsum("hij,jhn->ihn", {share, qkv.select(1, 2)});
    return at::linear(taken.flatten(1), weight("dec_attn.o_net.weight"));
  }

  // Returns queries, keys and values [states, 3, n_head, d_head].
  Tensor project(const Tensor& x) const {
    return at::linear(network.pre_lnorm ? norm("dec_attn", x) : x,
                      weight("dec_attn.qkv_net.weight"))
        .view({x.size(0), 3, network.n_head, network.d_head});
  }

  Tensor softmax(const Tensor& scores) const {
    return at::softmax(scores / std::sqrt(network.d_head), -1);
  }

  struct Memory {
    Tensor states;
    Tensor
        latest;  // The newest token that a state covers, or the first of its step if that is later.
  };

  // Line 3: a memory begins with zeros.
  Memory& memory_of(const std::string& place, Int length, Int width) {
    const Memory empty{zeros({length, width}), at::full({length}, -1, at::kLong)};
    return memories.try_emplace(place, empty).first->second;
  }

  // Figure 2d and section 2.3, "The Memory Updates": returns concat(m, s), and m becomes the newest
  // n_m states of concat(m, s[:shift]), without gradient. `newest` are the newest tokens of s.
  Tensor join(const std::string& place, const Tensor& s, const Tensor& newest, Int n_m, Int shift) {
    Memory& m = memory_of(place, n_m, s.size(1));
    const Tensor window = at::cat({m.states, s});
    m.states = last(n_m, at::cat({m.states, s.narrow(0, 0, shift)})).detach();
    m.latest = last(n_m, at::cat({m.latest, newest.narrow(0, 0, shift).clamp_min(begin)}));
    return window;
  }

  // Returns the newest token that each state covers. The newest `shift` states cover the segment.
  Tensor newest_of(const Tensor& states, Int shift) const {
    return begin + n_s - 1 - at::arange(states.size(0) - 1, -1, -1) * (n_s / shift);
  }

  // reset_memory_at_documents: states that cover no token of the current document become zeros,
  // unless a step inside the document made them.
  void forget_other_documents(const Ints& documents) {
    Int document = 0;
    for (const Int start : documents) {
      if (network.reset_memory_at_documents && start <= begin) document = start;
    }
    for (auto& [place, memory] : memories) {
      memory.states = memory.states.masked_fill(memory.latest.lt(document).unsqueeze(1), 0);
    }
  }

  // The compression function f_c (section 2.3; CT, section 3.1): `rate` states become one.
  Tensor compress(const Tensor& old, const Tensor& usage = {}) const {
    const Tensor groups = old.index({groups_of(old.size(0))});  // [count, rate, d_model]
    if (network.pool == net::Pool::kMax) return groups.amax(1);
    if (network.pool == net::Pool::kMean) return groups.mean(1);
    if (network.pool == net::Pool::kMostUsed) {  // in their order in time, of equals the newer
      const Tensor i = at::arange(old.size(0)), mine = usage.unsqueeze(1);
      const Tensor newer = usage.eq(mine).logical_and(i.gt(i.unsqueeze(1)));
      return old.index({usage.gt(mine).logical_or(newer).sum(1).lt(groups.size(0))});
    }
    return at::einsum("abi,kib->ka", {weight("compress.weight"), groups}) + weight("compress.bias");
  }

  // Returns the states that become one [count, rate]: neighbours or, dilated, states far apart.
  Tensor groups_of(Int states) const {
    return network.pool == net::Pool::kDilatedConvolution
               ? at::arange(states).view({network.rate, -1}).t()
               : at::arange(states).view({-1, network.rate});
  }

  // CT, algorithm 1: the n_s oldest states of memory and segment are compressed into a second
  // memory. If each new state may depend on any of them, it counts as covering all of them.
  void compress_memory(const std::string& place, const Tensor& s, const Tensor& recent,
                       const Tensor& usage) {
    const Tensor old = recent.narrow(0, 0, n_s).detach(), compressed = compress(old, usage);
    Tensor newest = newest_of(recent, n_s).narrow(0, 0, n_s).view({-1, network.rate}).amax(1);
    const bool neighbours =
        network.pool != net::Pool::kDilatedConvolution && network.pool != net::Pool::kMostUsed;
    if (!neighbours) newest = newest.max().expand_as(newest);
    join(place, compressed, newest, n_cm, newest.size(0));
    if (!network.learns_compression()) return;
    Tensor difference;  // section 3.2: the error of the compressed states
    if (network.compression_loss == net::CompressionLoss::kAutoEncoding) {
      difference = at::einsum("abi,ka->kib", {weight("decompress.weight"), compressed}) +
                   weight("decompress.bias") - old.index({groups_of(n_s)});
    } else {
      difference = attend_content(s.detach(), compressed) - attend_content(s.detach(), old);
    }
    reconstruction = reconstruction + difference.square().mean();
  }

  // CT, algorithm 2: attention without positions. No gradient reaches its weights.
  Tensor attend_content(const Tensor& s, const Tensor& memory) const {
    NetworkOnOnePage constant = *this;
    for (auto& [name, weight] : constant.weights) weight = weight.detach();
    const Tensor q = constant.project(s).select(1, 0), kv = constant.project(memory);
    const Tensor share = softmax(at::einsum("ihn,jhn->hij", {q, kv.select(1, 1)}));
    return at::einsum("hij,jhn->ihn", {share, kv.select(1, 2)});
  }

  // Encodes the places or distances 0, 1, ... (Vaswani et al., 2017), sines first as in XL's code.
  Tensor sinusoids(Int count, Int width) const {
    Tensor places = at::arange(count, at::kDouble);
    if (network.clamp_len > 0) places = places.clamp_max(network.clamp_len);
    const Tensor exponents = at::arange(0, width, 2, at::kDouble) / width;
    const Tensor angles = places.unsqueeze(1) / at::pow(10000.0, exponents);
    return at::cat({angles.sin(), angles.cos()}, 1);
  }

  Tensor norm(const std::string& of, const Tensor& x) const {
    const Tensor centred = x - x.mean(-1, true);
    const Tensor deviation = (centred.square().mean(-1, true) + 1e-5).sqrt();
    return centred / deviation * weight(of + ".layer_norm.weight") +
           weight(of + ".layer_norm.bias");
  }

  // Adaptive input and softmax (Baevski and Auli, 2019) as in XL's code: the vocabulary is cut into
  // clusters, which share one table with div_val 1, else have their own.
  Int begin_of(Int cluster) const {
    const auto cutoffs = static_cast<Int>(network.cutoffs.size());
    return cluster == 0 ? 0 : cluster > cutoffs ? network.vocab_size : network.cutoffs[cluster - 1];
  }
  Int cluster_of(Int id) const {
    const Ints& cutoffs = network.cutoffs;
    return std::upper_bound(cutoffs.begin(), cutoffs.end(), id) - cutoffs.begin();
  }
  std::string table_of(Int cluster) const {
    return std::to_string(network.div_val == 1 ? 0 : cluster);
  }
  Tensor rows(const std::string& name, Int cluster, const std::string& kind) const {
    const Tensor table = weights.at(name + table_of(cluster) + kind);
    return network.div_val == 1 ? table.slice(0, begin_of(cluster), begin_of(cluster + 1)) : table;
  }
  Tensor logits(const Tensor& output, Int cluster) const {
    return at::mv(rows("word_emb.emb_layers.", cluster, ".weight"), narrowed(output, cluster)) +
           rows("crit.out_layers.", cluster, ".bias");
  }
  Tensor narrowed(const Tensor& output, Int cluster) const {  // to the width of its embeddings
    const bool tied = network.tie_projs.empty() ? cluster > 0 : network.tie_projs[cluster];
    const auto projection = weights.find(tied ? "word_emb.emb_projs." + table_of(cluster)
                                              : "crit.out_projs." + std::to_string(cluster));
    return projection == weights.end() ? output : at::mv(projection->second.t(), output);
  }

  const Tensor& weight(const std::string& name) const {  // of the current layer
    return weights.at("layers." + std::to_string(layer) + "." + name);
  }
  Tensor linear(const std::string& name, const Tensor& x) const {
    return at::linear(x, weight(name + ".weight"), weight(name + ".bias"));
  }
  Tensor drop(const Tensor& x, Site::Kind kind) const {
    return dropout ? dropout(x, {kind, layer}, step) : x;
  }
  static Tensor zeros(at::IntArrayRef shape) { return at::zeros(shape, at::kDouble); }
  static Tensor last(Int count, const Tensor& x) { return x.narrow(0, x.size(0) - count, count); }

  bool recurrent = true;
  Int n_s = 0, n_cm = 0, step = 0, begin = 0, layer = 0;  // begin: the first token of the step
  std::map<Int, Tensor> sinusoids_of_distances = {};      // by width
  Tensor reconstruction = {};
  std::map<std::string, Memory> memories = {};
};

}  // namespace ql::test
