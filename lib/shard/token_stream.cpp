// Writes and reads token streams, block by block, and checks what it reads.

#include "shard/token_stream.h"

#include <system_error>

#include "base/bytes.h"
#include "base/data_input.h"
#include "base/log.h"
#include "base/process.h"
#include "shard/shard.h"

namespace ql::shard {

constexpr const char* kDamagedRemedy =
    "the stream was damaged on its way: produce it again, or fetch it again";

struct TokenStreamReader::State {
  explicit State(InputFile& file) : input(file, Content::kTokenStream) {}

  DataInput input;
  StreamHeader header;
  // These describe the block that was read last: its number, a buffer that begins with its bytes,
  // and its parts.
  std::int64_t block_number = -1;
  std::string block_bytes;
  std::string_view type, payload;
  bool pending = false;  // next() has not returned this block yet
  bool finished = false;
  std::int64_t tokens = 0, documents = 0;  // counted until now
  std::optional<TextCounts> counts;        // stated by the end block
  ContentHasher ids_hasher;

  [[noreturn]] void fail(const std::string& what,
                         const std::string& remedy = kDamagedRemedy) const {
    throw FormatError(fmt::format("{}: block {}", input.name(), block_number), what, remedy);
  }

  [[noreturn]] void fail_early(const std::string& what) const {
    // Ctrl-C stops the producer, too. In this case Interrupted is the right error, not the
    // producer's early end.
    check_for_stop();
    throw FormatError(input.name(), what,
                      "read the messages of the program that wrote the input and run that program "
                      "again, or copy the input again");
  }

  void read_exactly(void* data, std::size_t size) {
    if (read_fully(input, data, size) == size) return;
    fail_early(
        fmt::format("the input ended without an end block, in block {}: its producer did not "
                    "finish, or it was cut off later",
                    block_number));
  }

  void read_header() {
    std::string bytes(kStreamMagic.size() + 8, '\0');
    bytes.resize(read_fully(input, bytes.data(), bytes.size()));
    check_magic(bytes);
    const auto length = load_little_endian<std::uint32_t>(&bytes[kStreamMagic.size() + 4]);
    if (length > kLargestStreamHeader) {
      throw FormatError(input.name(),
                        fmt::format("header: its length of {} bytes exceeds the limit of {}",
                                    length, kLargestStreamHeader),
                        kDamagedRemedy);
    }
    const std::size_t start = bytes.size();
    bytes.resize(start + length + 8);
    const std::size_t got = read_fully(input, &bytes[start], length + 8);
    if (got != length + 8) fail_in_header();
    const std::size_t end = start + length;
    if (load_little_endian<std::uint64_t>(&bytes[end]) != xxh64(bytes.data(), end)) {
      throw FormatError(input.name(), "header: checksum mismatch", kDamagedRemedy);
    }
    read_header_json(std::string_view(bytes).substr(start, length));
  }

  [[noreturn]] void fail_in_header() const {
    fail_early(
        "the input ended inside the header of a token stream: its producer did not finish, or it "
        "was cut off later");
  }

  void check_magic(const std::string& bytes) const {
    const std::string_view start = std::string_view(bytes).substr(0, kStreamMagic.size());
    if (bytes.empty()) {
      fail_early("the input is empty, not a token stream: its producer wrote nothing");
    }
    if (start != kStreamMagic.substr(0, start.size())) {
      throw FormatError(input.name(), "not a token stream (it does not begin with \"QLTOKENS\")",
                        "make a token stream from text with `qltok encode`, or pack plain ids with "
                        "`qlbin pack --input ids` (or u16, u32)");
    }
    if (bytes.size() != kStreamMagic.size() + 8) fail_in_header();
    const auto version = load_little_endian<std::uint32_t>(&bytes[kStreamMagic.size()]);
    if (version != kStreamVersion) {
      throw FormatError(input.name(),
                        fmt::format("version {} of the token stream format, expected {}", version,
                                    kStreamVersion),
                        "use the same version of the tools at both ends of the pipe");
    }
  }

  void read_header_json(std::string_view text) {
    const std::string where = input.name() + ": header";
    const Json json = parse_json(text, where);
    const JsonObject object(json, where);
    header.vocabulary = vocabulary_info_from_json(object.object("vocabulary"));
    const std::int64_t bytes_per_id = object.integer("bytes_per_id");
    if (bytes_per_id != header.vocabulary.bytes_per_id()) {
      throw FormatError(
          where,
          fmt::format("{} bytes per id, expected {} for a vocabulary of {} entries", bytes_per_id,
                      header.vocabulary.bytes_per_id(), header.vocabulary.size));
    }
    header.provenance = object.at("provenance");
  }

  // Reads the complete next block and checks its checksum. Allocates no more than the format
  // allows.
  void read_block() {
    ++block_number;
    if (block_bytes.size() < 8) block_bytes.resize(8);
    read_exactly(block_bytes.data(), 8);
    const auto length = load_little_endian<std::uint32_t>(&block_bytes[4]);
    if (length > kLargestBlockPayload) {
      fail(fmt::format("its length of {} bytes exceeds the limit of {}", length,
                       kLargestBlockPayload));
    }
    if (block_bytes.size() < 8 + length + 8) block_bytes.resize(8 + length + 8);
    read_exactly(&block_bytes[8], length + 8);
    const auto seed = static_cast<std::uint64_t>(block_number);
    if (load_little_endian<std::uint64_t>(&block_bytes[8 + length]) !=
        xxh64(block_bytes.data(), 8 + length, seed)) {
      fail("checksum mismatch");
    }
    type = std::string_view(block_bytes).substr(0, 4);
    payload = std::string_view(block_bytes).substr(8, length);
  }

  void read_vocabulary() {
    for (read_block(); type == kVocabularyBlock; read_block()) {
      if (payload.size() > kLargestVocabularyText - header.vocabulary_text.size()) {
        fail(fmt::format("the vocabulary exceeds the limit of {} bytes", kLargestVocabularyText));
      }
      header.vocabulary_text += payload;
    }
    pending = true;
  }

  void take_data(Block& block) {
    const std::size_t size = payload.size();
    const std::uint64_t count = size < 8 ? 0 : load_little_endian<std::uint32_t>(&payload[0]);
    const std::uint64_t starts = size < 8 ? 0 : load_little_endian<std::uint32_t>(&payload[4]);
    const auto bytes_per_id = static_cast<std::uint64_t>(header.vocabulary.bytes_per_id());
    if (count < 1 || count > kLargestBlockTokens || starts > count ||
        size != 8 + 4 * starts + bytes_per_id * count) {
      fail(fmt::format("a block of {} bytes cannot have {} tokens and {} document starts", size,
                       count, starts));
    }
    block.document_starts.resize(starts);
    for (std::size_t i = 0; i < starts; ++i) {
      const auto start = load_little_endian<std::uint32_t>(&payload[8 + 4 * i]);
      if (start >= count || (i > 0 && start <= block.document_starts[i - 1])) {
        fail(fmt::format("document start {} is out of order or beyond the block's {} tokens", start,
                         count));
      }
      block.document_starts[i] = start;
    }
    if (tokens == 0 && (starts == 0 || block.document_starts[0] != 0)) {
      fail("no document begins at the first token");
    }
    take_ids(payload.substr(8 + 4 * starts), block);
    tokens += static_cast<std::int64_t>(count);
    documents += static_cast<std::int64_t>(starts);
  }

  void take_ids(std::string_view bytes, Block& block) {
    decode_ids(bytes.data(), bytes.size(), header.vocabulary.bytes_per_id(), block.ids);
    const std::string problem = outside_id(block.ids, tokens, header.vocabulary.size);
    if (!problem.empty()) fail(problem, "the program that wrote the stream is at fault");
    ids_hasher.update(bytes.data(), bytes.size());
  }

  void take_end() {
    const std::string where = fmt::format("{}: block {}", input.name(), block_number);
    const Json json = parse_json(payload, where);
    const JsonObject object(json, where);
    const std::int64_t stated_tokens = object.integer("tokens", 0);
    const std::int64_t stated_documents = object.integer("documents", 0);
    const std::string hash = object.text("ids_hash");
    if (object.has("counts")) counts = text_counts_from_json(object.object("counts"));
    if (stated_tokens != tokens || stated_documents != documents) {
      fail(fmt::format(
          "the end block states {} tokens in {} documents, but {} tokens in {} documents were read",
          stated_tokens, stated_documents, tokens, documents));
    }
    if (hash != ids_hasher.digest()) fail("the hash of all ids does not match");
    char extra = 0;
    if (input.read(&extra, 1) != 0) {
      throw FormatError(input.name(), "data follows the end block",
                        "give one token stream, or pack each stream alone and join the folders "
                        "with `qlbin merge`");
    }
    finished = true;
  }
};

bool names_stream(const std::string& path) {
  if (path == "-") return true;
  std::error_code unknown;  // the reader reports an unreachable path
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  if (std::filesystem::is_fifo(status)) return true;
  if (!std::filesystem::is_regular_file(status)) return false;
  // A path with the extension .json names a manifest, which stands for its folder.
  if (std::filesystem::path(path).extension() == ".json") return false;
  return DataInput(path, Content::kTokenStream).head().substr(0, kStreamMagic.size()) ==
         kStreamMagic;
}

TokenStreamReader::TokenStreamReader(InputFile& input) : state_(std::make_unique<State>(input)) {
  log_debug("reading {}", input.name());
  state_->read_header();
  state_->read_vocabulary();
}

TokenStreamReader::~TokenStreamReader() = default;

const StreamHeader& TokenStreamReader::header() const { return state_->header; }

bool TokenStreamReader::next(Block& block) {
  State& state = *state_;
  if (state.finished) return false;
  if (!state.pending) state.read_block();
  state.pending = false;
  if (state.type == kDataBlock) {
    state.take_data(block);
    return true;
  }
  if (state.type != kEndBlock) {
    state.fail("unknown type of block",
               "use the same version of the tools at both ends of the pipe");
  }
  state.take_end();
  return false;
}

std::int64_t TokenStreamReader::tokens() const { return state_->tokens; }
const std::optional<TextCounts>& TokenStreamReader::counts() const { return state_->counts; }

void copy_stream(TokenStreamReader& stream, TokenSink& sink, const TokensDone& done) {
  TokenStreamReader::Block block;
  std::int64_t tokens = 0;
  while (stream.next(block)) {
    check_for_stop();
    send_tokens(block.ids.data(), block.ids.size(), block.document_starts, sink);
    tokens += static_cast<std::int64_t>(block.ids.size());
    done(tokens);
  }
  check_for_stop();
}

// Blocks of this size keep data flowing through a pipe, and make the cost of checksums negligible.
constexpr std::size_t kTokensPerBlock = std::size_t{64} << 10;
constexpr std::size_t kVocabularyBytesPerBlock = std::size_t{1} << 20;

namespace {

class TokenStreamWriter : public TokenSink {
 public:
  TokenStreamWriter(ByteSink sink, const StreamHeader& header)
      : sink_(std::move(sink)),
        vocabulary_(header.vocabulary),
        bytes_per_id_(header.vocabulary.bytes_per_id()) {
    if (vocabulary_.size < 1) throw std::logic_error("token stream without a vocabulary size");
    write_header(header.provenance);
    write_vocabulary(header.vocabulary_text);
  }

  void begin_document() override { document_begins_ = true; }

  void write(const TokenId* ids, std::size_t count) override {
    if (finished_) throw std::logic_error("token stream written after its end");
    if (first_id_outside(ids, count, vocabulary_.size) >= 0) {
      throw std::logic_error("token id outside the vocabulary");
    }
    while (count > 0) {
      if (document_begins_) {
        document_starts_.push_back(static_cast<std::uint32_t>(tokens_in_block()));
        document_begins_ = false;
        ++documents_;
      }
      const std::size_t part = std::min(count, kTokensPerBlock - tokens_in_block());
      append_ids(ids_, ids, part, bytes_per_id_);
      tokens_ += static_cast<std::int64_t>(part);
      ids += part;
      count -= part;
      if (tokens_in_block() == kTokensPerBlock) flush();
    }
  }

  void flush() override {
    if (ids_.empty()) return;
    std::string head;
    append_little_endian(head, static_cast<std::uint32_t>(tokens_in_block()));
    append_little_endian(head, static_cast<std::uint32_t>(document_starts_.size()));
    for (const std::uint32_t start : document_starts_) append_little_endian(head, start);
    ids_hasher_.update(ids_.data(), ids_.size());
    write_block(kDataBlock, head, ids_);
    ids_.clear();
    document_starts_.clear();
  }

  void finish(const std::optional<TextCounts>& counts) override {
    if (finished_) throw std::logic_error("token stream finished twice");
    flush();
    Json json{{"tokens", tokens_}, {"documents", documents_}, {"ids_hash", ids_hasher_.digest()}};
    if (counts) json["counts"] = text_counts_to_json(*counts);
    write_block(kEndBlock, json.dump());
    finished_ = true;
  }

 private:
  void write_header(const Json& provenance) {
    const std::string json = Json{
        {"bytes_per_id", bytes_per_id_},
        {"vocabulary", vocabulary_info_to_json(vocabulary_)},
        {"provenance",
         provenance}}.dump();
    if (json.size() > kLargestStreamHeader) {
      throw Error("token stream",
                  fmt::format("the header has {} bytes, but readers take at most {}", json.size(),
                              kLargestStreamHeader),
                  "shorten the provenance in the header");
    }
    std::string bytes(kStreamMagic);
    append_little_endian(bytes, kStreamVersion);
    append_little_endian(bytes, static_cast<std::uint32_t>(json.size()));
    bytes += json;
    append_little_endian(bytes, xxh64(bytes.data(), bytes.size()));
    sink_(bytes.data(), bytes.size());
  }

  void write_vocabulary(std::string_view text) {
    if (text.size() > kLargestVocabularyText) {
      throw Error("token stream",
                  fmt::format("the vocabulary file of {} bytes exceeds the limit of {}",
                              text.size(), kLargestVocabularyText));
    }
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), kVocabularyBytesPerBlock))) {
      write_block(kVocabularyBlock, {}, text.substr(0, kVocabularyBytesPerBlock));
    }
  }

  void write_block(std::string_view type, std::string_view head, std::string_view rest = {}) {
    block_ = type;
    append_little_endian(block_, static_cast<std::uint32_t>(head.size() + rest.size()));
    block_ += head;
    block_ += rest;
    append_little_endian(block_, xxh64(block_.data(), block_.size(), block_number_++));
    sink_(block_.data(), block_.size());
  }

  std::size_t tokens_in_block() const {
    return ids_.size() / static_cast<std::size_t>(bytes_per_id_);
  }

  ByteSink sink_;
  VocabularyInfo vocabulary_;
  int bytes_per_id_;
  std::uint64_t block_number_ = 0;
  std::string block_;                           // being sent to the sink
  std::string ids_;                             // ids of the block being filled, as bytes
  std::vector<std::uint32_t> document_starts_;  // offsets in the block being filled
  bool document_begins_ = true;                 // a document begins at the next token
  bool finished_ = false;
  std::int64_t tokens_ = 0, documents_ = 0;
  ContentHasher ids_hasher_;
};

}  // namespace

std::unique_ptr<TokenSink> make_stream_writer(ByteSink sink, const StreamHeader& header) {
  return std::make_unique<TokenStreamWriter>(std::move(sink), header);
}

}  // namespace ql::shard
