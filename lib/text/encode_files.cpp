#include "text/encode_files.h"

#include <algorithm>
#include <utility>

#include "text/block_jobs_internal.h"

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
  TextReader reader(files, encoder.cut(), block_bytes, TextReader::kLongestUnit, encoder.content());
  Collector collector(encoder, sink);
  work_on_blocks(
      reader, threads, [&encoder](TextBlock block) { return encoder.encode(std::move(block)); },
      [&](const EncodedBlock& block) {
        collector.add(block);
        after_block();
      });
  return collector.totals();
}

}  // namespace ql::text
