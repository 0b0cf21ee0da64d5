#include "shard/token_stream_format.h"

namespace ql::shard {

Json stream_totals_to_json(const StreamTotals& totals) {
  Json json{
      {"tokens", totals.tokens}, {"documents", totals.documents}, {"ids_hash", totals.ids_hash}};
  if (totals.counts) json["counts"] = text_counts_to_json(*totals.counts);
  return json;
}

StreamTotals stream_totals_from_json(const JsonObject& json) {
  StreamTotals totals;
  totals.tokens = json.integer("tokens", 0);
  totals.documents = json.integer("documents", 0);
  totals.ids_hash = json.text("ids_hash");
  if (json.has("counts")) totals.counts = text_counts_from_json(json.object("counts"));
  return totals;
}

}  // namespace ql::shard
