// Chooses how the sequences of items are read, finds the greedy choices, and adds up accuracies.

#include "eval/items.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/process.h"
#include "eval/chunk_size.h"
#include "eval/losses.h"
#include "eval/short_sequences.h"

namespace ql::eval {

namespace {

// Items are scored when they have this many tokens, so that batches are large and rows come soon.
constexpr std::int64_t kBatchTokens = std::int64_t{1} << 15;
// A shared beginning is read by itself if this saves about as many tokens, or makes a long chunk.
constexpr std::int64_t kSharedTokens = 1024;

std::optional<std::int64_t> optional_integer(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<std::int64_t>());
}

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

// Returns the index of the choice with the greatest score; of equal ones, the first.
template <typename Score>
std::int64_t best_of(const Item& item, const Score& score) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < item.choices.size(); ++i) {
    if (score(item.choices[i]) > score(item.choices[best])) best = i;
  }
  return static_cast<std::int64_t>(best);
}

// Returns for each choice the first choice with the same tokens. Equal choices are scored once: in
// different rows of a batch their last digits might differ, and then the first of them would not
// always be the best.
std::vector<Choice*> first_equals(Item& item) {
  std::map<std::vector<std::int64_t>, Choice*> known;
  std::vector<Choice*> firsts;
  for (Choice& choice : item.choices) {
    firsts.push_back(known.emplace(choice.ids, &choice).first->second);
  }
  return firsts;
}

}  // namespace

Item item_from_json(const Json& record) {
  Item item;
  item.number = record.at("number");
  item.where = record.at("where");
  item.context = record.at("context").get<std::vector<std::int64_t>>();
  for (const Json& choice : record.at("choices")) {
    item.choices.push_back(
        {choice.at("ids").get<std::vector<std::int64_t>>(), optional_integer(choice.at("unknown")),
         optional_integer(choice.at("bytes")), optional_integer(choice.at("characters"))});
  }
  item.answer = optional_integer(record.at("answer"));
  item.keys = record.at("keys");
  return item;
}

ItemScorer::ItemScorer(const nn::ModelAtLengths& model, std::optional<shard::TokenId> begin,
                       const EvaluationOptions& options, Sink sink)
    : model_(model),
      begin_(begin),
      options_(options),
      sink_(std::move(sink)),
      segments_(segments_of_chunk(model, options.chunk)) {}

std::vector<std::int64_t> ItemScorer::context_of(const Item& item) const {
  std::vector<std::int64_t> inputs;
  if (begin_) inputs.push_back(static_cast<std::int64_t>(*begin_));
  inputs.insert(inputs.end(), item.context.begin(), item.context.end());
  return inputs;
}

void ItemScorer::put(Item item) {
  const auto check = [&](const std::vector<std::int64_t>& ids) {
    check_ids(item.where, 0, ids.data(), static_cast<std::int64_t>(ids.size()),
              model_.model().network().vocab_size);
    waiting_tokens_ += static_cast<std::int64_t>(ids.size());
  };
  check(item.context);
  for (const Choice& choice : item.choices) {
    check(choice.ids);
    waiting_tokens_ += static_cast<std::int64_t>(item.context.size());
  }
  if (item.context.empty() && !begin_) {
    throw Error(item.where, "the context is empty, so nothing precedes the first token of a choice",
                "give a context, or with --begin the id of a token to read before it");
  }
  waiting_.push_back(std::move(item));
  if (waiting_tokens_ >= kBatchTokens * options_.group->size()) put_waiting();
}

void ItemScorer::put_waiting() {
  if (waiting_.empty()) return;
  const at::NoGradGuard no_gradient;
  std::vector<Sequence> sequences;
  std::vector<std::size_t> of_item;          // for each item, the number of sequences before it
  std::vector<std::vector<Choice*>> firsts;  // for each item, first_equals()
  std::int64_t rows = 0;
  // Each process scores a part of the items.
  const std::size_t rank = static_cast<std::size_t>(options_.group->rank()),
                    size = static_cast<std::size_t>(options_.group->size());
  const std::size_t begin = waiting_.size() * rank / size,
                    end = waiting_.size() * (rank + 1) / size;
  for (std::size_t i = begin; i < end; ++i) {
    Item& item = waiting_[i];
    of_item.push_back(sequences.size());
    const std::vector<std::int64_t> context = context_of(item);
    firsts.push_back(first_equals(item));
    for (std::size_t number = 0; number < item.choices.size(); ++number) {
      Choice& choice = item.choices[number];
      // An empty choice has the probability 1.
      if (choice.ids.empty() || firsts.back()[number] != &choice) continue;
      sequences.push_back({&choice, context, static_cast<std::int64_t>(context.size()) - 1, rows});
      std::vector<std::int64_t>& inputs = sequences.back().inputs;
      inputs.insert(inputs.end(), choice.ids.begin(), choice.ids.end() - 1);
      rows += static_cast<std::int64_t>(choice.ids.size());
    }
  }
  of_item.push_back(sequences.size());
  at::Tensor states = at::empty({rows, model_.model().network().d_model}, model_.model().options());
  std::vector<ShortSequence> short_ones;
  std::vector<Sequence*> others;
  for (std::size_t item = 0; item + 1 < of_item.size(); ++item) {
    std::vector<Sequence*> of_this;
    for (std::size_t i = of_item[item]; i < of_item[item + 1]; ++i) {
      of_this.push_back(&sequences[i]);
    }
    if (of_this.empty()) continue;
    const std::int64_t shared = of_this.front()->first / segment() * segment();
    if (shared * static_cast<std::int64_t>(of_this.size()) >= kSharedTokens) {
      read_shared(of_this, shared, states);
      continue;
    }
    for (Sequence* sequence : of_this) {
      if (sequence->length() > segment()) {
        others.push_back(sequence);
      } else {
        short_ones.push_back(
            {sequence->inputs.data(), sequence->length(), sequence->first, sequence->row});
      }
    }
  }
  read_side_by_side(model_, begin_, std::move(short_ones), states);
  nn::Memory memory = model_.start_memory(1);
  read_layer_by_layer(others, 0, memory, states);
  score(sequences, states);
  for (std::size_t i = begin; i < end; ++i) {
    for (std::size_t number = 0; number < waiting_[i].choices.size(); ++number) {
      const Choice& same = *firsts[i - begin][number];
      waiting_[i].choices[number].log_probability = same.log_probability;
      waiting_[i].choices[number].greedy = same.greedy;
    }
  }
  if (size > 1) exchange_scores();
  std::vector<Item> scored;
  scored.swap(waiting_);
  waiting_tokens_ = 0;
  for (Item& item : scored) sink_(std::move(item));
  check_for_stop();
}

void ItemScorer::exchange_scores() {
  std::vector<Choice*> choices;
  for (Item& item : waiting_) {
    for (Choice& choice : item.choices) choices.push_back(&choice);
  }
  // A score is a number in one process, and the sum of this number and zeros in all.
  const at::Tensor scores = at::zeros({static_cast<std::int64_t>(choices.size()), 2}, at::kDouble);
  auto* const numbers = scores.data_ptr<double>();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    numbers[2 * i] = choices[i]->log_probability;
    numbers[2 * i + 1] = choices[i]->greedy ? 0 : 1;
  }
  options_.group->sum(scores);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    choices[i]->log_probability = numbers[2 * i];
    choices[i]->greedy = numbers[2 * i + 1] == 0;
  }
}

void ItemScorer::read_shared(const std::vector<Sequence*>& sequences, std::int64_t read_once,
                             at::Tensor& states) {
  const std::vector<std::int64_t>& inputs = sequences.front()->inputs;
  const auto known = static_cast<std::int64_t>(shared_.size());
  const bool goes_on =
      known > 0 && known <= read_once && std::equal(shared_.begin(), shared_.end(), inputs.begin());
  if (!goes_on) shared_memory_ = model_.start_memory(1);
  const std::int64_t begin = goes_on ? known : 0;
  shared_.assign(inputs.begin(), inputs.begin() + read_once);
  Sequence shared{nullptr, shared_, read_once, 0};  // without targets
  read_layer_by_layer({&shared}, begin, shared_memory_, states);
  for (Sequence* sequence : sequences) {
    nn::Memory memory = shared_memory_;
    read_layer_by_layer({sequence}, read_once, memory, states);
  }
}

void ItemScorer::read_layer_by_layer(const std::vector<Sequence*>& sequences, std::int64_t from,
                                     nn::Memory& memory, at::Tensor& states) const {
  std::vector<std::int64_t> tokens, offsets, places, rows;
  const auto read_chunk = [&] {
    if (offsets.empty()) return;
    tokens.resize(offsets.size() * static_cast<std::size_t>(segment()));
    const at::Tensor read_states =
        model_.forward_stream(at::tensor(tokens).view({-1, segment()}), memory, offsets);
    if (!places.empty()) {
      const auto index = [&](const std::vector<std::int64_t>& of) {
        return at::tensor(of).to(states.device());
      };
      states.index_copy_(0, index(rows), read_states.flatten(0, 1).index_select(0, index(places)));
    }
    for (std::vector<std::int64_t>* list : {&tokens, &offsets, &places, &rows}) list->clear();
    check_for_stop();
  };
  for (const Sequence* sequence : sequences) {
    for (std::int64_t i = from; i < sequence->length(); ++i) {
      if (i % segment() == 0) {
        if (static_cast<std::int64_t>(offsets.size()) == segments_) read_chunk();
        tokens.resize(offsets.size() * static_cast<std::size_t>(segment()));
        offsets.push_back(i);
      }
      if (i >= sequence->first) {
        places.push_back(static_cast<std::int64_t>(tokens.size()));
        rows.push_back(sequence->row + i - sequence->first);
      }
      tokens.push_back(sequence->inputs[static_cast<std::size_t>(i)]);
    }
  }
  read_chunk();
}

void ItemScorer::score(const std::vector<Sequence>& sequences, const at::Tensor& states) {
  if (sequences.empty()) return;
  std::vector<std::int64_t> ids, positions(static_cast<std::size_t>(states.size(0)));
  for (const Sequence& sequence : sequences) {
    ids.insert(ids.end(), sequence.choice->ids.begin(), sequence.choice->ids.end());
  }
  std::iota(positions.begin(), positions.end(), std::int64_t{0});
  std::vector<double> losses;
  EvaluationOptions options;
  options.model = options_.model;
  options.sink = [&](const ScoredTargets& scored) {
    losses.insert(losses.end(), scored.losses, scored.losses + scored.count);
  };
  Evaluation sums;
  try {
    score_states(model_.model(), states, ids, positions, options, sums);
  } catch (const NotFinite&) {
    throw NotFinite(options_.model);  // without a position, which is not that of an item's token
  }
  for (const Sequence& sequence : sequences) {
    const auto first = losses.begin() + sequence.row;
    // The negative of a sum of 0 would be printed as -0.
    sequence.choice->log_probability =
        0.0 - std::accumulate(
                  first, first + static_cast<std::ptrdiff_t>(sequence.choice->ids.size()), 0.0);
  }
  find_greedy(sequences, losses, states);
}

void ItemScorer::find_greedy(const std::vector<Sequence>& sequences,
                             const std::vector<double>& losses, const at::Tensor& states) const {
  // A token above one half is the likeliest, and one below 1 / vocab_size is not. The likeliest
  // token is computed only for the others: first for the least likely one of a choice, which
  // usually decides, and then for the rest.
  const double never = std::log(static_cast<double>(model_.model().network().vocab_size)) + 1e-3;
  const double always = std::log(2.0) - 1e-3;
  const auto check = [&](const std::vector<std::pair<Choice*, std::int64_t>>& rows,
                         const std::vector<std::int64_t>& ids) {
    if (rows.empty()) return;
    std::vector<std::int64_t> indexes;
    indexes.reserve(rows.size());
    for (const auto& row : rows) indexes.push_back(row.second);
    const std::vector<LikelyToken> likeliest = likeliest_in_blocks(
        model_.model(), states.index_select(0, at::tensor(indexes).to(states.device())), 1);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // The losses do not show a NaN in another cluster of an adaptive softmax.
      if (!std::isfinite(likeliest[i].log_probability)) throw NotFinite(options_.model);
      if (likeliest[i].id != ids[i]) rows[i].first->greedy = false;
    }
  };
  for (const bool least_likely : {true, false}) {
    std::vector<std::pair<Choice*, std::int64_t>> rows;
    std::vector<std::int64_t> ids;
    for (const Sequence& sequence : sequences) {
      const auto first = losses.begin() + sequence.row;
      const auto end = first + static_cast<std::ptrdiff_t>(sequence.choice->ids.size());
      const auto largest = std::max_element(first, end);
      if (*largest > never) sequence.choice->greedy = false;
      if (!sequence.choice->greedy) continue;
      for (auto loss = first; loss != end; ++loss) {
        if (*loss < always || (loss == largest) != least_likely) continue;
        rows.emplace_back(sequence.choice, sequence.row + (loss - first));
        ids.push_back(sequence.choice->ids[static_cast<std::size_t>(loss - first)]);
      }
    }
    check(rows, ids);
  }
}

Json choice_row(const Item& item, std::size_t choice) {
  const Choice& scored = item.choices[choice];
  return {{"item", item.number},
          {"id", item.keys.value("id", Json())},
          {"choice", choice},
          {"tokens", scored.ids.size()},
          {"log_probability", scored.log_probability},
          {"greedy", scored.greedy ? 1 : 0},
          {"bytes", or_null(scored.bytes)},
          {"characters", or_null(scored.characters)},
          {"unknown_tokens", or_null(scored.unknown)}};
}

void ItemSums::add(const Item& item) {
  ++items_;
  bool bytes = true;
  for (const Choice& choice : item.choices) {
    unknown_ =
        unknown_ && choice.unknown ? std::optional(*unknown_ + *choice.unknown) : std::nullopt;
    bytes = bytes && choice.bytes;
  }
  const bool cloze = item.choices.size() == 1;
  if (!cloze && !item.answer) return;
  const auto answer = static_cast<std::size_t>(item.answer.value_or(0));
  const Choice& right = item.choices[answer];
  const auto add_if_right = [&](const auto& divisor) {
    if (cloze) return right.greedy ? 1 : 0;
    return best_of(item,
                   [&](const Choice& choice) {
                     return choice.log_probability /
                            std::max(1.0, static_cast<double>(divisor(choice)));
                   }) == static_cast<std::int64_t>(answer)
               ? 1
               : 0;
  };
  ++answered_;
  right_ += add_if_right([](const Choice&) { return 1; });
  right_per_token_ += add_if_right([](const Choice& choice) { return choice.ids.size(); });
  if (!bytes) right_per_byte_.reset();
  if (right_per_byte_) {
    *right_per_byte_ += add_if_right([](const Choice& choice) { return *choice.bytes; });
  }
  nll_ -= right.log_probability;
  tokens_ += static_cast<std::int64_t>(right.ids.size());
}

Json ItemSums::row() const {
  Json row = {{"items", items_}, {"answered", answered_}};
  const auto n = static_cast<double>(answered_);
  const auto put = [&](const std::string& name, std::optional<std::int64_t> right) {
    const double share = static_cast<double>(right.value_or(0)) / n;
    const bool known = right && answered_ > 0;
    row[name] = known ? Json(share) : Json();
    row[name + "_error"] =
        known && answered_ > 1 ? Json(std::sqrt(share * (1 - share) / (n - 1))) : Json();
  };
  put("accuracy", right_);
  put("accuracy_per_byte", right_per_byte_);
  put("accuracy_per_token", right_per_token_);
  row["nll"] = answered_ > 0 ? Json(nll_ / n) : Json();
  row["perplexity"] = tokens_ > 0 ? Json(std::exp(nll_ / static_cast<double>(tokens_))) : Json();
  row["unknown_tokens"] = or_null(unknown_);
  return row;
}

}  // namespace ql::eval
