#include "text/encode_files.h"

#include <algorithm>
#include <utility>

#include "base/ordered_jobs.h"

namespace ql::text {
namespace {

// Adds up blocks, and passes them on with a document's beginning at its first token.
class Collector : public shard::TokenSink {
 public:
  Collector(const Encoder& encoder, shard::TokenSink& sink)
      : unk_(encoder.vocabulary().unk()), sink_(sink) {}

  void add(const EncodedBlock& block) {
    shard::send_tokens(block.ids.data(), block.ids.size(), block.document_starts, *this);
    totals_.counts = totals_.counts + block.counts;
    totals_.reserved += block.reserved;
    if (unk_) totals_.unk += std::count(block.ids.begin(), block.ids.end(), *unk_);
  }
  const EncodeTotals& totals() const { return totals_; }

  void begin_document() override { document_pending_ = true; }
  void write(const TokenId* ids, std::size_t count) override {
    if (count == 0) return;
    if (document_pending_) {
      sink_.begin_document();
      ++totals_.documents;
      document_pending_ = false;
    }
    sink_.write(ids, count);
    totals_.tokens += static_cast<std::int64_t>(count);
  }
  void finish(const std::optional<shard::TextCounts>&) override {}

 private:
  std::optional<TokenId> unk_;
  shard::TokenSink& sink_;
  EncodeTotals totals_;
  bool document_pending_ = true;  // the first token begins a document in any case
};

}  // namespace

EncodeTotals encode_files(const std::vector<std::string>& files, const Encoder& encoder,
                          int threads, shard::TokenSink& sink,
                          const std::function<void()>& after_block, std::size_t block_bytes) {
  TextReader reader(files, encoder.cut(), block_bytes);
  Collector collector(encoder, sink);
  OrderedJobs<EncodedBlock> jobs(threads);
  const auto collect_first = [&] {
    collector.add(jobs.take());
    after_block();
  };
  TextBlock block;
  while (reader.next_before_error(block)) {
    const std::size_t bytes = block.text.size();
    jobs.add(
        [&encoder, text = std::move(block)]() mutable { return encoder.encode(std::move(text)); },
        bytes);
    while (jobs.full()) collect_first();
    // While more text is waited for, all of what has come is passed on.
    while (!reader.has_more() && !jobs.empty()) collect_first();
  }
  while (!jobs.empty()) collect_first();
  reader.rethrow_error();
  return collector.totals();
}

}  // namespace ql::text
