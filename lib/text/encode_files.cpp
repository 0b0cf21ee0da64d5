#include "text/encode_files.h"

#include <algorithm>
#include <deque>
#include <future>
#include <utility>

namespace ql::text {
namespace {

// Writes encoded blocks to a sink and adds up.
class Collector {
 public:
  Collector(const Encoder& encoder, shard::TokenSink& sink)
      : unk_(encoder.vocabulary().unk()), sink_(sink) {}

  void add(const EncodedBlock& block) {
    std::size_t written = 0;
    for (const std::size_t start : block.document_starts) {
      write(block.ids, written, start);
      document_pending_ = true;
      written = start;
    }
    write(block.ids, written, block.ids.size());
    totals_.counts = totals_.counts + block.counts;
    totals_.reserved += block.reserved;
    if (unk_) totals_.unk += std::count(block.ids.begin(), block.ids.end(), *unk_);
  }
  const EncodeTotals& totals() const { return totals_; }

 private:
  void write(const std::vector<TokenId>& ids, std::size_t begin, std::size_t end) {
    if (begin == end) return;
    if (document_pending_) {
      sink_.begin_document();
      ++totals_.documents;
      document_pending_ = false;
    }
    sink_.write(ids.data() + begin, end - begin);
    totals_.tokens += static_cast<std::int64_t>(end - begin);
  }

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
  std::deque<std::future<EncodedBlock>> running;  // in the order of the text
  const auto collect_first = [&] {
    const EncodedBlock block = running.front().get();
    running.pop_front();
    collector.add(block);
    after_block();
  };
  const std::launch policy = threads > 1 ? std::launch::async : std::launch::deferred;
  TextBlock block;
  while (reader.next(block)) {
    running.push_back(std::async(
        policy, [&encoder](TextBlock text) { return encoder.encode(std::move(text)); },
        std::move(block)));
    if (running.size() >= static_cast<std::size_t>(std::max(threads, 1))) collect_first();
    // While more text is waited for, all of what has come is passed on.
    while (!reader.has_more() && !running.empty()) collect_first();
  }
  while (!running.empty()) collect_first();
  return collector.totals();
}

}  // namespace ql::text
