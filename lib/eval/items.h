// Scores items: continuations ("choices") of contexts, each item by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/evaluate.h"
#include "nn/model_at_lengths.h"

namespace ql::eval {

// Evaluations of language models compare the probabilities of continuations of a context (LAMBADA,
// HellaSwag, BLiMP). qleval(1) describes the items of a file, text/items.h encodes them.

struct Choice {
  std::vector<std::int64_t> ids = {};
  std::optional<std::int64_t> unknown = {}, bytes = {}, characters = {};  // if they are known
  double log_probability = 0;  // of all its tokens after the context, natural logarithm
  bool greedy = true;          // each of its tokens is the likeliest
};

struct Item {
  std::int64_t number = 0;  // of the line, from 1
  std::string where;        // the file and line, for messages
  std::vector<std::int64_t> context;
  std::vector<Choice> choices;
  std::optional<std::int64_t> answer;  // index of the right choice
  Json keys = Json::object();          // all further keys of the line
};

// Reads the record of an item that tools/pipe_items.cpp wrote.
Item item_from_json(const Json& record);

// Scores items in batches. An item begins with an empty memory. `begin`, if given, is read before
// its context, and is the only token before the first choice token if the context is empty.
//
// Sequences of at most one segment are read side by side (eval/short_sequences.h), unless their
// context is read once for all choices: only their tokens are computed, not the rest of the
// segment. Other sequences follow each other in a stream, layer by layer, with a reset of the
// memory before each (eval/independent_scorer.h). A long context is read once, for all choices and
// for the following items that begin with the same segments.
class ItemScorer {
 public:
  // Gets the items in the order of put().
  using Sink = std::function<void(Item item)>;
  // The model must outlive this object. The processes of options.group must put the same items, and
  // call put_waiting() together. They share the work, and all of them get the scores.
  ItemScorer(const nn::ModelAtLengths& model, std::optional<shard::TokenId> begin,
             const EvaluationOptions& options, Sink sink);

  // Throws Error for an id outside the vocabulary, and if nothing precedes a choice's first token.
  void put(Item item);
  // Scores all items that have arrived. Call this before waiting for more of them.
  void put_waiting();

 private:
  // The tokens that the network reads for one choice: all except the choice's last token.
  struct Sequence {
    Choice* choice;
    std::vector<std::int64_t> inputs;
    std::int64_t first;  // index in `inputs` of the token before the choice's first one
    std::int64_t row;    // the place of its first state among the states of all targets
    std::int64_t length() const { return static_cast<std::int64_t>(inputs.size()); }
  };
  std::int64_t segment() const { return model_.geometry().lengths.segment; }
  std::vector<std::int64_t> context_of(const Item& item) const;
  // Reads the sequences from their token number `from` on. If it is not 0, there is one sequence,
  // which continues the one that left this memory.
  void read_layer_by_layer(const std::vector<Sequence*>& sequences, std::int64_t from,
                           nn::Memory& memory, at::Tensor& states) const;
  // Reads the first `read_once` tokens of the sequences, which they have in common.
  void read_shared(const std::vector<Sequence*>& sequences, std::int64_t read_once,
                   at::Tensor& states);
  void score(const std::vector<Sequence>& sequences, const at::Tensor& states);
  void exchange_scores();
  void find_greedy(const std::vector<Sequence>& sequences, const std::vector<double>& losses,
                   const at::Tensor& states) const;

  const nn::ModelAtLengths& model_;
  std::optional<shard::TokenId> begin_;
  EvaluationOptions options_;
  Sink sink_;
  std::int64_t segments_;  // in a chunk
  std::vector<Item> waiting_;
  std::int64_t waiting_tokens_ = 0;
  // The last shared beginning, and the memory after it.
  std::vector<std::int64_t> shared_;
  nn::Memory shared_memory_;
};

// Returns the row of a choice for qleval --per choice.
Json choice_row(const Item& item, std::size_t choice);

// Adds up the figures of items.
class ItemSums {
 public:
  void add(const Item& item);
  // Returns the columns that follow those of the model: items, answered, accuracy and so on.
  Json row() const;

 private:
  std::int64_t items_ = 0, answered_ = 0, tokens_ = 0;
  std::int64_t right_ = 0, right_per_token_ = 0;
  std::optional<std::int64_t> right_per_byte_ = 0, unknown_ = 0;  // absent if not all are known
  double nll_ = 0;                                                // of the right answers
};

}  // namespace ql::eval
